"""A step of each kind of model, as its users write it: of timm, of Keras, of Flax.

Keras models run through `predict_on_batch` and `train_on_batch` on NumPy arrays. With
`resident=True` the data stay on the device: PyTorch and JAX train by what `fit` calls, TensorFlow
by the loop of Keras's guide to custom training steps. Models of PyTorch itself have weights in
bfloat16 for inference, and train under autocast. With jit=whole, a model of Keras runs as they do.
"""

import numpy as np
from peers import PEERS

RATE, DECAY = 1e-4, 0.01  # of AdamW, for all


def set_precision(backend, dtype):
    """Has products of float32 computed exactly, or with dtype "tf32" by a GPU's tensor cores."""
    is_tf32 = dtype == "tf32"
    if backend == "torch":
        import torch

        torch.set_float32_matmul_precision("high" if is_tf32 else "highest")
    elif backend == "jax":
        import jax

        jax.config.update("jax_default_matmul_precision", "tensorfloat32" if is_tf32 else "float32")
    else:
        import tensorflow as tf

        tf.config.experimental.enable_tensor_float_32_execution(is_tf32)


def set_up_keras(s):
    """Sets the precision, before anything is computed."""
    import keras

    if keras.backend.backend() != s.backend:
        raise RuntimeError(f"Keras computes on {keras.backend.backend()}, not on {s.backend}.")
    short = "bfloat16" if s.weights == "bfloat16" else "mixed_bfloat16"
    keras.config.set_dtype_policy(short if s.dtype == "bfloat16" else "float32")


def make_step(model, s):
    """A step of a model that was built for `Settings`.

    Returns:
        A function that starts a step, one that waits for all of them, and the number of parameters.
    """
    rng = np.random.default_rng(0)
    size = s.architecture.image_size
    images = rng.standard_normal((s.batch, size, size, 3), dtype="float32")
    labels = rng.integers(0, s.architecture.num_classes, s.batch).astype("int32")
    make = {"keras": _keras, "torch": _torch, "flax": _flax}[PEERS[s.name].framework]
    step, wait, parameters = make(model, s, images, labels)
    wanted = s.architecture.parameters
    if abs(parameters - wanted) > 0.01 * wanted:
        counts = f"{s.label} has {parameters:,} parameters, {s.architecture.name} has {wanted:,}"
        raise ValueError(f"{counts}: this is another model.")
    return step, wait, parameters


def _torch(model, s, images, labels):
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    short, infers = s.dtype == "bfloat16", s.task == "infer"
    dtype = torch.bfloat16 if short and infers else torch.float32
    x = torch.from_numpy(images).to(device)
    if PEERS[s.name].framework == "torch":
        model, x = model.to(device, dtype), x.permute(0, 3, 1, 2).contiguous().to(dtype)
    y = torch.from_numpy(labels).long().to(device)

    def loss_of(x, y):
        with torch.autocast(device, torch.bfloat16, enabled=short):
            return torch.nn.functional.cross_entropy(model(x), y)

    forward = model
    if s.jit in ("true", "max", "whole"):
        mode = "max-autotune" if s.jit == "max" else None
        loss_of, forward = torch.compile(loss_of, mode=mode), torch.compile(model, mode=mode)

    def infer():
        with torch.inference_mode():
            return forward(x)

    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)

    def train():
        optimizer.zero_grad()
        loss_of(x, y).backward()
        optimizer.step()

    model.train(not infers)
    parameters = sum(p.numel() for p in model.parameters())
    return infer if infers else train, _wait(torch), parameters


def _keras(model, s, images, labels):
    import keras

    if s.jit == "whole" and s.backend == "torch":
        return _torch(model, s, images, labels)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    jit = {"auto": "auto", "false": False}.get(s.jit, True)
    model.compile(_optimizer(s), loss, jit_compile=jit)
    if s.resident:
        make = {"jax": _resident_jax, "torch": _resident_torch, "tensorflow": _resident_tensorflow}
        step, wait = make[s.backend](model, s.task, images, labels)
    elif s.task == "infer":
        step, wait = (lambda: model.predict_on_batch(images)), lambda: None
    else:
        parts = list(zip(np.split(images, int(s.parts)), np.split(labels, int(s.parts))))
        step, wait = (lambda: [model.train_on_batch(*part) for part in parts]), lambda: None
    return step, wait, model.count_params()


def _optimizer(s):
    import keras

    parts = None if s.parts == "1" else int(s.parts)
    optimizers = keras.optimizers
    if s.optimizer == "ours":
        from keras_vit import training as optimizers
    return optimizers.AdamW(RATE, weight_decay=DECAY, gradient_accumulation_steps=parts)


def _resident_torch(model, task, images, labels):
    import keras
    import torch

    x, y = keras.ops.convert_to_tensor(images), keras.ops.convert_to_tensor(labels)
    if task == "train":
        if model.jit_compile is True:
            model.jit_compile = False
            model.fit(x, y, batch_size=len(x), verbose=0)  # builds metrics, which no compiler can
            model.jit_compile = True
        model.make_train_function(force=True)
        return lambda: model.train_function([(x, y)]), _wait(torch)
    forward = torch.compile(model) if model.jit_compile is True else model

    def infer():
        with torch.inference_mode():
            return forward(x, training=False)

    return infer, _wait(torch)


def _resident_jax(model, task, images, labels):
    import jax

    x, y = jax.numpy.asarray(images), jax.numpy.asarray(labels)
    groups = [model.trainable_variables, model.non_trainable_variables]
    if task == "train":
        model.optimizer.build(model.trainable_variables)
        groups += [model.optimizer.variables, model.metrics_variables]
    state = tuple([v.value for v in group] for group in groups)

    def forward(state, data):
        return model.stateless_call(*state, data[0], training=False)[0]

    return _compiled_jax(task, state, (x, y), forward, model.train_step)


def _compiled_jax(task, state, data, forward, update):
    """A step that carries its state on, from functions of state and data, and what waits for it."""
    import jax

    last = {"state": state}
    forward, update = jax.jit(forward), jax.jit(update, donate_argnums=0)

    def infer():
        last["result"] = forward(last["state"], data)

    def train():
        last["result"], last["state"] = update(last["state"], data)

    return infer if task == "infer" else train, lambda: jax.block_until_ready(last)


def _resident_tensorflow(model, task, images, labels):
    import tensorflow as tf

    x, y = tf.constant(images), tf.constant(labels)
    compiled = tf.function(jit_compile=model.jit_compile is True)

    def train():
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x, y, model(x, training=True))
        variables = model.trainable_variables
        model.optimizer.apply(tape.gradient(loss, variables), variables)

    if task == "train":
        model.optimizer.build(model.trainable_variables)
        return compiled(train), tf.test.experimental.sync_devices
    return compiled(lambda: model(x, training=False)), tf.test.experimental.sync_devices


def _flax(model, s, images, labels):
    import jax
    import optax

    if s.dtype != "float32":
        raise ValueError("The authors' Flax models compute in float32 only.")
    x, y = jax.numpy.asarray(images), jax.numpy.asarray(labels)
    weights = jax.jit(lambda: model.init(jax.random.key(0), x, train=False))()
    optimizer = optax.adamw(RATE, weight_decay=DECAY)

    def loss_of(weights, x, y):
        logits = model.apply(weights, x, train=True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    def update(state, data):
        loss, gradients = jax.value_and_grad(loss_of)(state[0], *data)
        updates, slots = optimizer.update(gradients, state[1], state[0])
        return loss, (optax.apply_updates(state[0], updates), slots)

    def forward(state, data):
        return model.apply(state[0], data[0], train=False)

    parameters = sum(leaf.size for leaf in jax.tree.leaves(weights))
    state = weights, optimizer.init(weights) if s.task == "train" else None
    return *_compiled_jax(s.task, state, (x, y), forward, update), parameters


def _wait(torch):
    return torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
