"""What `model.compile` and `model.fit` need, made from a recipe."""

import re

import keras

from keras_vit import training

MANY_CLASSES = 100


def schedule(recipe):
    """See `Recipe.make_schedule`."""
    run = (recipe.learning_rate, recipe.steps, recipe.warmup_steps)
    if recipe.schedule == "linear":
        return training.WarmupLinear(*run, end=recipe.end_learning_rate)
    if recipe.schedule == "rsqrt":
        return training.WarmupRsqrt(*run, recipe.timescale, recipe.cooldown_steps)
    if recipe.schedule in ("stairs", "constant"):  # stairs without a step
        return training.WarmupStairs(*run, boundaries=recipe.boundaries)
    return training.WarmupCosine(*run)


def optimizer(recipe, model=None):
    """See `Recipe.make_optimizer`."""
    shared = {
        "weight_decay": recipe.weight_decay,
        "decayed": recipe.decayed,
        "global_clipnorm": recipe.clip_norm,
        "layer_decay": recipe.layer_decay,
        "num_blocks": _num_blocks(model) if recipe.layer_decay else None,
        "use_ema": recipe.ema is not None,
        "ema_momentum": recipe.ema or 0.99,
        "gradient_accumulation_steps": recipe.accumulate if recipe.accumulate > 1 else None,
    }
    rate = schedule(recipe)
    if recipe.optimizer == "sgdm":
        return training.SGDM(rate, recipe.momentum, **shared)
    return training.AdamW(rate, recipe.beta1, recipe.beta2, recipe.epsilon, **shared)


def _num_blocks(model):
    """The blocks of a model, frozen ones too, or `None` where there is none to see."""
    names = [layer.name for layer in getattr(model, "layers", ())]
    return sum(bool(re.fullmatch(r"block_\d+", name)) for name in names) or None


def loss(recipe):
    """See `Recipe.make_loss`."""
    kind = {"softmax": training.SoftmaxLoss, "sigmoid": training.SigmoidLoss}[recipe.loss]
    dtype = "float64" if recipe.precision == "float64" else "float32"
    return kind(recipe.label_smoothing, dtype=dtype)


def metrics(recipe):
    """See `Recipe.metrics`."""
    found = [training.Accuracy(name="accuracy")]
    if (recipe.num_classes or 0) >= MANY_CLASSES:
        found.append(training.Accuracy(top=5))
    return found


def callbacks(recipe):
    """See `Recipe.callbacks`."""
    return [training.EvaluateAverages()] if recipe.ema is not None else []


def compile_model(recipe, model, options):
    """See `Recipe.compile`."""
    if not isinstance(model, keras.Model):
        raise TypeError(f"model must be a keras.Model. Received: model={model!r}.")
    made = {
        "optimizer": lambda: optimizer(recipe, model),
        "loss": lambda: loss(recipe),
        "metrics": lambda: metrics(recipe),
    }
    made = {name: make() for name, make in made.items() if name not in options}
    model.compile(**made, **options)
    return model
