"""Models with several outputs: each is a head with a name, read and measured by itself.

Such a model is `keras.Model(vit.input, {"species": Dense(3)(f), "weight": Dense(1)(f)})`. One call
of it gives all heads. A model of one head alone, which shares its layers, tells what the head is.
"""

import contextlib
from collections.abc import Mapping

import keras

OF_HEADS = ("reading", "class_names", "label_set")  # which may be dicts {head: value}
_OF_IMAGES = ("preprocessing", "image_size", "channels")


def heads_of(model):
    """{name: the model of that output alone} of a model with several; {} of any other.

    The names are the keys of a dict of outputs, and those of the last layers of a list of them.
    Each model has its part of the loss, `reading`, `class_names` and `label_set`, which are dicts
    {head: value}, or one value of all heads.

    Raises:
        ValueError: outputs in dicts of dicts, two of one name, or an attribute that is a dict and
            names what is no head.
    """
    if len(getattr(model, "outputs", None) or ()) < 2:
        return {}
    output, is_dict = model.output, isinstance(model.output, Mapping)
    names, tensors = (list(output), [*output.values()]) if is_dict else (model.output_names, output)
    if len(set(names)) < len(tensors) or len(model.outputs) != len(tensors):
        raise ValueError(
            "The outputs of a model must have different names, {head: output}, or be a list of "
            f"those of layers of different names. Received: {model.name!r} with the outputs "
            f"{keras.tree.map_structure(lambda x: tuple(x.shape), output)} of {names}."
        )
    loss = getattr(model, "loss", None)
    if isinstance(loss, (list, tuple)):  # Keras gives a list to a dict in the order of its keys
        loss = dict(zip(sorted(names) if is_dict else names, loss))
    for_each(names, **{each: getattr(model, each, None) for each in OF_HEADS})
    heads = {}
    for name, tensor in zip(names, tensors):
        heads[name] = head = keras.Model(model.input, tensor, name=model.name)
        head.head_name, head.loss = name, of_head(loss, name)
        for attribute in OF_HEADS:
            setattr(head, attribute, of_head(getattr(model, attribute, None), name))
        for attribute in _OF_IMAGES:
            if hasattr(model, attribute):
                setattr(head, attribute, getattr(model, attribute))
    return heads


def check_one_head(model, purpose="This"):
    """Raises a ValueError that tells how to pick one output of a model that has several."""
    if heads := heads_of(model):
        raise ValueError(
            f"{purpose} takes a model with one output. Received: {model.name!r} with the heads "
            f"{', '.join(map(repr, heads))}; {picked(model, heads)} is the first of them."
        )


def picked(model, heads):
    """The code that makes a model of the first head."""
    key = next(iter(heads)) if isinstance(model.output, Mapping) else 0
    return f"keras.Model(model.input, model.output[{key!r}])"


def split(outputs, heads, name="The model"):
    """{head: its part} of what a model with these heads gives; {None: outputs} of one without.

    Raises:
        ValueError: several outputs of a model that has no graph to name them.
    """
    if heads and isinstance(outputs, Mapping):
        return {head: outputs[head] for head in heads}
    if heads:
        return dict(zip(heads, outputs))
    outputs = keras.tree.flatten(outputs)
    if len(outputs) != 1:
        raise ValueError(
            "Several outputs are named by the graph of a Functional model, keras.Model(inputs, "
            f"{{name: output}}). Received: {name!r} with {len(outputs)} outputs and without one."
        )
    return {None: outputs[0]}


def for_each(heads, **options):
    """{head: its options}: each is a dict {head: value}, without those left out, or one for all.

    Raises:
        ValueError: a dict that names what is no head.
    """
    by_head = {head: {} for head in heads}
    for name, value in options.items():
        values = value if isinstance(value, Mapping) else dict.fromkeys(heads, value)
        if unknown := [head for head in values if head not in by_head]:
            known = ", ".join(repr(head) for head in heads if head is not None)
            raise ValueError(
                f"A dict as {name} must name heads of the model, which has {known or 'none'}. "
                f"Received: {', '.join(map(repr, unknown))}."
            )
        for head, each in values.items():
            by_head[head][name] = each
    return by_head


def map_heads(function, value, *others):
    """`function(value, *others)`; where `value` is a dict by head, {head: function of its values}.

    Of the others, what is no dict is the value of all heads. Errors name the head.
    """
    if not isinstance(value, Mapping):
        return function(value, *others)
    by_head = {}
    for head in value:
        with errors_of(head, note=False):
            by_head[head] = function(*(of_head(each, head) for each in (value, *others)))
    return by_head


def of_head(value, head):
    """What a value, which may be a dict by head, is for one of them; `None` where it has none."""
    return value.get(head) if isinstance(value, Mapping) and head is not None else value


@contextlib.contextmanager
def errors_of(head, note=True):
    """Errors within it name the head, unless it is `None`; a note tells how it gets an option."""
    try:
        yield
    except ValueError as error:
        if head is None:
            raise
        note = note and f"{{{head!r}: " not in str(error)
        text = f" (What is said for one head alone is a dict: {{{head!r}: ...}}.)" if note else ""
        raise ValueError(f"Head {head!r}: {error}{text}") from error
