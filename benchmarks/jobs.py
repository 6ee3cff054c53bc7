"""A step of each kind of model, ready to be timed."""

import dataclasses
from collections.abc import Callable

import numpy as np
from keras_jobs import keras_job
from peers import get_peer

RATE, DECAY = 1e-4, 0.01  # of AdamW, for everybody


@dataclasses.dataclass
class Job:
    """What is timed.

    Attributes:
        step: starts one step.
        wait: returns when all steps are done.
        parameters: how many the model has.
        logits: a function that gives the shape of what the model gives, not to be timed.
    """

    step: Callable
    wait: Callable
    parameters: int
    logits: Callable


def make_data(s):
    """The images and labels that every implementation gets."""
    rng = np.random.default_rng(0)
    size = s.architecture.image_size
    images = rng.standard_normal((s.batch, size, size, 3), dtype="float32")
    return images, rng.integers(0, s.architecture.num_classes, s.batch).astype("int32")


def make_job(model, s):
    """The `Job` of a model that was built for these `Settings`."""
    maker = {"keras": keras_job, "torch": _torch_job, "flax": _flax_job}
    return Job(*maker[get_peer(s.name, s.backend).framework](model, s, *make_data(s)))


def check(job, s):
    """Raises where this is not the model that was asked for."""
    shape, classes = tuple(job.logits()), s.architecture.num_classes
    if shape[1:] != (classes,):
        raise ValueError(f"{s.label} gives outputs of shape {shape}, not {classes} logits each.")
    wanted = s.architecture.parameters
    if abs(job.parameters - wanted) > 0.01 * wanted:
        raise ValueError(
            f"{s.label} has {job.parameters:,} parameters where {s.architecture.name} has "
            f"{wanted:,}: this is another model."
        )


def _torch_job(model, s, images, labels):
    """As its users write it: bfloat16 weights for inference, autocast for training."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    short = s.dtype == "bfloat16"
    model = model.to(device, torch.bfloat16 if short and s.task == "infer" else torch.float32)
    x = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous().to(device)
    y = torch.from_numpy(labels).long().to(device)
    make = _torch_infer if s.task == "infer" else _torch_train
    step = make(torch, model, x.bfloat16() if short and s.task == "infer" else x, y, s, device)

    def logits():
        with torch.no_grad():
            return model(x[:1].to(next(model.parameters()).dtype)).shape

    wait = torch.cuda.synchronize if device == "cuda" else _nothing
    return step, wait, sum(p.numel() for p in model.parameters()), logits


def _torch_infer(torch, model, x, y, s, device):
    model.eval()
    forward = torch.compile(model) if s.jit == "true" else model

    def step():
        with torch.inference_mode():
            return forward(x)

    return step


def _torch_train(torch, model, x, y, s, device):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)

    def loss_of(x, y):
        with torch.autocast(device, torch.bfloat16, enabled=s.dtype == "bfloat16"):
            return torch.nn.functional.cross_entropy(model(x), y)

    loss_of = torch.compile(loss_of) if s.jit == "true" else loss_of

    def step():
        optimizer.zero_grad()
        loss_of(x, y).backward()
        optimizer.step()

    return step


def _flax_job(model, s, images, labels):
    import jax

    if s.dtype != "float32":
        raise ValueError("The authors' Flax models compute in float32 only.")
    x, y = jax.numpy.asarray(images), jax.numpy.asarray(labels)
    weights = jax.jit(lambda: model.init(jax.random.key(0), x, train=False))()
    shapes = jax.eval_shape(lambda: weights)
    make = _flax_infer if s.task == "infer" else _flax_train
    step, last = make(jax, model, weights, x, y)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(weights))

    def logits():
        return jax.eval_shape(lambda w: model.apply(w, x, train=False), shapes).shape

    return step, lambda: jax.block_until_ready(last), parameters, logits


def _flax_infer(jax, model, weights, x, y):
    forward = jax.jit(lambda weights, x: model.apply(weights, x, train=False))
    last = {}

    def step():
        last["logits"] = forward(weights, x)

    return step, last


def _flax_train(jax, model, weights, x, y):
    import optax

    optimizer = optax.adamw(RATE, weight_decay=DECAY)

    def loss_of(weights):
        logits = model.apply(weights, x, train=True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    def update(weights, slots):
        loss, gradients = jax.value_and_grad(loss_of)(weights)
        updates, slots = optimizer.update(gradients, slots, weights)
        return optax.apply_updates(weights, updates), slots, loss

    update = jax.jit(update, donate_argnums=(0, 1))
    last = {"weights": weights, "slots": optimizer.init(weights)}

    def step():
        weights, slots, loss = update(last["weights"], last["slots"])
        last.update(weights=weights, slots=slots, loss=loss)

    return step, last


def _nothing():
    pass
