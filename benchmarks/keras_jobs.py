"""A step of a Keras model: as `predict` and `fit` compute it, or with the data on the device."""

import itertools

JIT = {"auto": "auto", "true": True, "false": False}
RATE, DECAY = 1e-4, 0.01


def prepare_keras(s):
    """What must be said before a model is built: precision and fused attention."""
    import keras

    if keras.backend.backend() != s.backend:
        raise RuntimeError(f"Keras computes on {keras.backend.backend()}, not on {s.backend}.")
    short = "bfloat16" if s.weights == "bfloat16" else "mixed_bfloat16"
    keras.config.set_dtype_policy(short if s.dtype == "bfloat16" else "float32")
    if s.flash == "true":
        keras.config.enable_flash_attention()
    elif s.flash == "false":
        keras.config.disable_flash_attention()


def keras_job(model, s, images, labels):
    """step, wait, parameters and the shape of the logits: the fields of a `Job`."""
    import keras

    if s.task == "infer":
        model.compile(jit_compile=JIT[s.jit])
        make = _resident_infer if s.resident else _predict
    else:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(_optimizer(s), loss, jit_compile=JIT[s.jit])
        make = _resident_train if s.resident else _train_on_batch
    step, wait = make(model, s.backend, images, labels)
    return step, wait, model.count_params(), lambda: model.output_shape


def _optimizer(s):
    import keras

    if s.optimizer == "keras":
        return keras.optimizers.AdamW(RATE, weight_decay=DECAY)
    from keras_vit import training

    return training.AdamW(RATE, weight_decay=DECAY)


def _predict(model, backend, images, labels):
    return lambda: model.predict_on_batch(images), _nothing


def _train_on_batch(model, backend, images, labels):
    return lambda: model.train_on_batch(images, labels), _nothing


def _resident_infer(model, backend, images, labels):
    if backend == "torch":
        return _torch_infer(model, images)
    if backend == "jax":
        return _jax_infer(model, images)
    return _tensorflow_infer(model, images)


def _torch_infer(model, images):
    import keras
    import torch

    x = keras.ops.convert_to_tensor(images)
    forward = torch.compile(model) if model.jit_compile else model

    def step():
        with torch.inference_mode():
            return forward(x, training=False)

    return step, _torch_wait(torch)


def _jax_infer(model, images):
    import jax

    x, last = jax.numpy.asarray(images), {}
    trained, rest = _values(model.trainable_variables), _values(model.non_trainable_variables)

    @jax.jit
    def forward(trained, rest, x):
        return model.stateless_call(trained, rest, x, training=False)[0]

    def step():
        last["logits"] = forward(trained, rest, x)

    return step, lambda: jax.block_until_ready(last)


def _tensorflow_infer(model, images):
    import tensorflow as tf

    x = tf.constant(images)
    compiled = bool(model.jit_compile)
    forward = tf.function(lambda x: model(x, training=False), jit_compile=compiled)
    return lambda: forward(x), tf.test.experimental.sync_devices


def _resident_train(model, backend, images, labels):
    if backend == "jax":
        return _jax_train(model, images, labels)
    import keras

    x, y = keras.ops.convert_to_tensor(images), keras.ops.convert_to_tensor(labels)
    batches = itertools.repeat((x, y)) if backend == "tensorflow" else [(x, y)]

    def step():
        if model.train_function is None:  # the first step makes it, and the optimizer's slots
            model.train_on_batch(x, y)
        else:
            model.train_function(batches)

    if backend == "tensorflow":
        import tensorflow as tf

        return step, tf.test.experimental.sync_devices
    import torch

    return step, _torch_wait(torch)


def _jax_train(model, images, labels):
    """Keras's stateless functions in one program, whose old weights give their memory back."""
    import jax

    x, y = jax.numpy.asarray(images), jax.numpy.asarray(labels)
    model.optimizer.build(model.trainable_variables)
    groups = model.trainable_variables, model.non_trainable_variables, model.optimizer.variables
    last = {"state": tuple(_values(group) for group in groups)}

    def loss_of(trained, rest):
        logits, rest = model.stateless_call(trained, rest, x, training=True)
        return model.loss(y, logits), rest

    def update(trained, rest, slots):
        (loss, rest), gradients = jax.value_and_grad(loss_of, has_aux=True)(trained, rest)
        trained, slots = model.optimizer.stateless_apply(slots, gradients, trained)
        return (trained, rest, slots), loss

    update = jax.jit(update, donate_argnums=(0, 1, 2))

    def step():
        last["state"], last["loss"] = update(*last["state"])

    return step, lambda: jax.block_until_ready(last)


def _values(variables):
    return [variable.value for variable in variables]


def _torch_wait(torch):
    return torch.cuda.synchronize if torch.cuda.is_available() else _nothing


def _nothing():
    pass
