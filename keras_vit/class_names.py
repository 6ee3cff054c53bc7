"""Which class of a model, or of the data it learned from, each class of other data is, by name."""

import contextlib
import unicodedata
import warnings
from collections import Counter
from collections.abc import Mapping

import numpy as np

from keras_vit.ends import known_of_end, networks_at_end
from keras_vit.heads import heads_of, map_heads


def class_map(problem, known, of_data, counts, owner="the model"):
    """The number that the owner of `known` names gives to each class of the data, int64 (classes,).

    It is `None` where both number the classes alike. Names decide where the data has any of the
    known ones: then all of its names must be known. Otherwise the order decides, if there are as
    many. Of classes of one name, as ImageNet's two cranes, the first is the first. Values to
    estimate need no names, which decide only if both have the same; one of them in another place is
    an error.

    Args:
        problem: what labels of the data are, see `keras_vit.data.sources.PROBLEMS`, or `None`.
        known, of_data: names of the classes in the order of their numbers, or `None`.
        counts: how many classes the owner has; two numbers, (1, 2), of a single sigmoid.
        owner: whose names the known ones are, for messages.

    Raises:
        ValueError: the data has names that are not known, or another number of classes.
    """
    known, of_data = ([] if each is None else [*map(str, each)] for each in (known, of_data))
    if problem == "regression" and sorted(known) != sorted(of_data):
        places = [(known.index(name), of_data.index(name)) for name in of_data if name in known]
        if any(place != other for place, other in places):
            raise ValueError(
                f"Targets that the data shares with {owner} must have the same places, unless both "
                f"have the same names. Received: {of_data}, and {known} of {owner}; name those "
                "alike that are the same, and others otherwise."
            )
        return None
    if not of_data:
        return None
    is_answer = len(known) == 1 and 2 in counts  # one name of a single sigmoid, that of class 1
    if is_answer and (len(of_data) == 2 or problem == "single_label"):
        other = next((name for name in of_data if name not in known), None)
        known = [other if known[0] in of_data else f"not {known[0]}", *known]
    unknown = [name for name in of_data if name not in known]
    if unknown and (0 < len(of_data) - len(unknown) or len(of_data) not in counts):
        others = f"classes that {owner} does not know, {unknown[:10]}" if known else "other classes"
        raise ValueError(
            f"The classes of the data must be among those of {owner}. Received: {others}; the "
            f"data has {len(of_data)} and {owner} {counts[-1]}. Name those alike that are the "
            "same; a model that learns other classes gets their names as model.class_names."
        )
    if unknown:
        if known and of_data != list(map(str, range(len(of_data)))):
            warnings.warn(
                "The classes have other names in the data, so their order decides. Received: "
                f"{of_data[0]!r} for {known[0]!r} of {owner}; give both the same names.",
                stacklevel=3,
            )
        numbers = [int(name) for name in of_data if name.isdecimal()]
        if not known and len(numbers) == len(of_data) and numbers != sorted(numbers):
            place = next(n for n, name in enumerate(sorted(numbers)) if name != numbers[n])
            warnings.warn(
                f"The classes of the data are numbers in the order of text, and {owner} names "
                f"none. Received: {of_data[place]!r} as class {place}; set model.class_names, to "
                "those of the data if it learned from data in this order.",
                stacklevel=3,
            )
        return None
    places = {}
    for number, name in enumerate(known):
        places.setdefault(name, []).append(number)
    for name, times in Counter(of_data).items():
        if times != len(places[name]):
            raise ValueError(
                f"Classes of one name must be as many in the data as {owner} has. Received: "
                f"{times} and {len(places[name])} of {name!r}; give them different names"
            )
    return None if of_data == known else np.array([places[name].pop(0) for name in of_data])


def check_classes(model, data, validation=None, training=False):
    """Raises a ValueError where `fit` would take a class of the data for another one.

    Names of the model, of the data and of the data for validation are compared, of each head. In
    training, those that an earlier `fit` recorded give way to other ones.
    """
    recorded = getattr(model, "names_of_fit", None) if training else None
    names, problem = (getattr(data, name, None) for name in ("class_names", "problem"))

    def check(of_data, known, problem, owner, recorded=None):
        if not _are_names(of_data) or not _are_names(known):
            return
        if recorded == tuple(known) and {*recorded} != {*of_data}:
            return
        counts = (1, 2) if len(known) == 1 else (len(known),)
        numbers = class_map(problem, known, of_data, counts, owner)
        moved = [] if numbers is None else np.flatnonzero(numbers != np.arange(len(numbers)))
        if len(moved):
            number = int(moved[0])
            raise ValueError(
                f"The classes must have the numbers that {owner} gives them, as labels are "
                f"numbers. Received: {of_data[number]!r} as {number}, which is {numbers[number]} "
                f"of {owner}; give both the same classes in the same order (a model that learns "
                "others gets their names as model.class_names)."
            )

    map_heads(check, names, known_of_end(model, "class_names"), problem, "the model", recorded)
    others = getattr(validation, "class_names", None)
    map_heads(check, others, names, problem, "the training data")


def record_classes(model, data):
    """Gives what trains on data, a model or the networks at its end, their names of the classes.

    What has names keeps them, unless an earlier `fit` recorded them. Without any, the order would
    decide in silence which class of later data is which.
    """

    def recorded(names, known, before, one):
        is_free = known is None or (_are_names(known) and tuple(known) == before)
        return tuple(names) if is_free and _have_outputs(names, one) else None

    names, model = getattr(data, "class_names", None), getattr(model, "student", model)
    before = getattr(model, "names_of_fit", None)
    if isinstance(names, Mapping) and (heads := heads_of(model)):
        known = {name: head.class_names for name, head in heads.items()}
        new = map_heads(recorded, dict.fromkeys(heads) | names, known, before, heads)
        if new := {name: one for name, one in new.items() if one}:
            model.class_names, model.names_of_fit = known | new, new
    elif new := recorded(names, known_of_end(model, "class_names"), before, model):
        model.names_of_fit = new
        for network in networks_at_end(model) or [model]:
            network.class_names = new


def _are_names(names):
    """Whether there are names, in an order, which those of a user's own dict do not have."""
    return names is not None and not isinstance(names, Mapping) and len(names) > 0


def _have_outputs(names, model):
    """Whether names are as many as the outputs of a model, or the two of a single sigmoid."""
    shape = getattr(model, "output_shape", None)
    outputs = shape[-1] if isinstance(shape, tuple) else None
    return _are_names(names) and len(names) in ((1, 2) if outputs == 1 else (outputs,))


def warn_of_twins(class_names, source):
    """Warns of names that differ by case, spaces, the form of Unicode or of a number alone.

    "true" and "false" are forms of 1 and 0.
    """
    forms = {}
    for name in dict.fromkeys(class_names):
        text = unicodedata.normalize("NFKC", name).casefold()
        text = " ".join("".join(c for c in text if unicodedata.category(c) != "Cf").split())
        with contextlib.suppress(ValueError):
            text = str(float({"true": 1, "false": 0}.get(text, text)))  # "1", "1.0" and "true"
        forms.setdefault(text, []).append(ascii(name))
    if twins := [" and ".join(names) for names in forms.values() if len(names) > 1]:
        warnings.warn(
            f"Classes of {source} have names that look alike, and each is a class of its own. "
            f"Received: {'; '.join(twins[:5])}; give them one name where one class is meant.",
            stacklevel=2,
        )
