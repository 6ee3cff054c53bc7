"""A recipe as a table to read."""


def rows(recipe):
    """(setting, value) of everything that a recipe sets; see `Recipe.table`."""
    r = recipe
    return [
        (setting, value)
        for setting, value in (
            ("data", _data(r)),
            ("model", _model(r)),
            ("images", f"{_size(r.image_size)}, values in [{r.train.value_range[0]:g}, 1]"),
            ("training images", _transform(r.train)),
            ("evaluation images", _transform(r.eval)),
            ("mixing", _mixing(r)),
            ("batch", _batch(r)),
            ("length", _length(r)),
            ("loss", _loss(r)),
            ("optimizer", _optimizer(r)),
            ("learning rate", _learning_rate(r)),
            ("sweep", ", ".join(f"{rate:g}" for rate in r.learning_rates)),
            ("weight decay", _decay(r)),
            ("gradient clipping", r.clip_norm and f"norm of all gradients {r.clip_norm:g}"),
            ("dropout", r.dropout and f"{r.dropout:g}"),
            ("stochastic depth", r.stochastic_depth and f"{r.stochastic_depth:g}"),
            ("averaged weights", r.ema and f"{r.ema:.6g} of the old average per update"),
            ("precision", f"{r.precision}{', blocks computed again' if r.remat else ''}"),
            ("seed", str(r.seed)),
            ("source", r.source),
            *[("note", note) for note in r.notes],
        )
        if value
    ]


def text(recipe):
    """The table in plain text."""
    found = rows(recipe)
    width = max(len(setting) for setting, _ in found)
    lines = [f"{setting:<{width}}  {value}" for setting, value in found]
    return "\n".join([recipe.name, "-" * len(recipe.name), *lines])


def _size(size):
    return f"{size[0]} x {size[1]} px"


def _data(r):
    classes = f", {r.num_classes:,} classes" if r.num_classes else ""
    examples = f", {r.examples:,} images" if r.examples else ""
    test = f"; tested on {r.test_split}" if r.test_split else ""
    return f"{r.dataset}, {r.train_split}{examples}{classes}{test}"


def _model(r):
    choices = dict(r.architecture)
    for name in ("pool", "position", "representation_size"):
        if getattr(r, name) is not None:
            choices[name] = getattr(r, name)
    if r.head_bias:
        choices["head_bias"] = f"{r.head_bias:.4g}"
    listed = [f"{name} {value}" for name, value in choices.items()]
    return ", ".join([r.variant or "any", *listed])


def _transform(t):
    crops = {
        "inception": f"random box of {t.area[0]:.0%} to {t.area[1]:.0%} of the image",
        "resize_small_random": f"shorter side to {t.resize_small}, random window",
        "squash_random": f"squashed to {t.resize_small} x {t.resize_small}, random window",
        "pad_random": f"{t.padding} px of zeros around, random window",
        "resize_small_center": f"shorter side to {t.resize_small}, middle",
        "squash_center": f"squashed to {t.resize_small} x {t.resize_small}, middle",
        "squash": "resized without regard to the aspect ratio",
    }
    flip = ", mirrored half of the time" if t.flip else ""
    randaugment = f", RandAugment{t.randaugment}" if t.randaugment else ""
    return crops[t.crop] + flip + randaugment


def _mixing(r):
    parts = [("mixup", r.mixup), ("CutMix", r.cutmix)]
    return ", ".join(f"{name} Beta({p:g}, {p:g})" for name, p in parts if p)


def _batch(r):
    parts = f", in {r.accumulate} parts of {r.micro_batch_size}" if r.accumulate > 1 else ""
    return f"{r.batch_size:,}{parts}"


def _length(r):
    return f"{r.steps:,} updates" + (f" ({r.passes:.4g} epochs)" if r.passes else "")


def _loss(r):
    smoothing = f", labels smoothed by {r.label_smoothing:g}" if r.label_smoothing else ""
    summed = ", summed over the classes" if r.loss == "sigmoid" else ""
    return f"{r.loss} cross-entropy{summed}{smoothing}"


def _optimizer(r):
    if r.optimizer == "sgdm":
        return f"SGD, momentum {r.momentum:g} (learning rate outside the buffer)"
    return f"Adam, beta ({r.beta1:g}, {r.beta2:g}), epsilon {r.epsilon:g}"


def _learning_rate(r):
    ends = {"linear": f" to {r.end_learning_rate:g}", "cosine": " to 0"}
    stairs = f", / 10 after {', '.join(map(str, r.boundaries))}" if r.boundaries else ""
    warmup = f", {r.warmup_steps:,} updates of warm-up" if r.warmup_steps else ""
    layers = f", times {r.layer_decay:g} per layer towards the image" if r.layer_decay else ""
    return f"{r.learning_rate:.4g}, {r.schedule}{ends.get(r.schedule, '')}{stairs}{warmup}{layers}"


def _decay(r):
    if not r.weight_decay:
        return ""
    return f"{r.weight_decay:.4g} times the learning rate, of every {', '.join(r.decayed)}"
