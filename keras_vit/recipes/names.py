"""Names that a user may write, and the nearest ones where there is no such name."""

import difflib


def nearest(word, known, count=3):
    """The known names most like `word`, best first; some of them where none is like it."""
    lowered = {str(name).lower(): name for name in known}
    close = difflib.get_close_matches(str(word).lower(), lowered, n=count, cutoff=0.4)
    return [lowered[name] for name in close] or list(known)[:count]


def unknown(kind, word, known, argument=None, listed=None):
    """The ValueError for a name that does not exist, with the nearest and all that do.

    Args:
        kind: what the name should be of, such as `"VTAB task"`.
        word: what was received.
        known: the names that exist.
        argument: what received it; `None` for the last word of `kind`.
        listed: where all names can be seen, if they are too many for a message.
    """
    all_names = f"{listed} prints all" if listed else f"all are {list(known)}"
    return ValueError(
        f"Unknown {kind}. Received: {argument or kind.split()[-1]}={word!r}; the nearest are "
        f"{nearest(word, known)}, and {all_names}."
    )


def check_epochs(epochs, lengths, who):
    """Raises a ValueError that lists the lengths that were published, where this is none."""
    if isinstance(epochs, int) and epochs in lengths:
        return
    published = " or ".join(map(str, lengths))
    raise ValueError(
        f"{who} for {published} epochs. Received: epochs={epochs!r}; use .scale(epochs=...) for "
        "another length."
    )


# What a setting is called elsewhere.
SYNONYMS = {
    "lr": "learning_rate",
    "base_lr": "learning_rate",
    "wd": "weight_decay",
    "decay": "weight_decay",
    "batch": "batch_size",
    "warmup": "warmup_steps",
    "resolution": "image_size",
    "grad_clip": "clip_norm",
    "classes": "num_classes",
    "drop_path": "stochastic_depth",
    "randaugment": "train",
    "dtype": "precision",
}
FOLLOWS = {  # a property -> what it follows from
    "epochs": "steps; use scale(epochs=...)",
    "passes": "steps; use scale(epochs=...)",
    "micro_batch_size": "batch_size and accumulate",
    "is_bit": "variant",
}


def no_field(name, value, known):
    """The ValueError for a setting that a recipe does not have."""
    if name in FOLLOWS:
        return ValueError(f"{name} follows from {FOLLOWS[name]}. Received: {name}={value!r}.")
    first = [SYNONYMS[name]] if name in SYNONYMS else []
    near = dict.fromkeys([*first, *nearest(name, known)])
    return ValueError(
        f"A recipe has no {name!r}. Received: {name}={value!r}; the nearest fields are "
        f"{list(near)[:3]}."
    )
