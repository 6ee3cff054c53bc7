"""What a model is besides its graph, which its first layer keeps where layers are all there is."""

import dataclasses
import inspect
import json
import re
import warnings
import zipfile
from typing import Any

import keras
import numpy as np

from keras_vit.checks import check_choice, output_names, pair, positive_int
from keras_vit.heads import for_each, map_heads
from keras_vit.outputs import READINGS
from keras_vit.preprocessing import Preprocessing
from keras_vit.workarounds import own_policy, policies_in

# The attributes that a model gets from weights or training, besides `preprocessing`.
CAME_WITH_WEIGHTS = ("class_names", "label_set", "reading", "weights_from")
SETTINGS = ("image_size", "num_classes", "channels", "head_bias")


@keras.saving.register_keras_serializable("keras_vit", name="Origin")  # the name in files
@dataclasses.dataclass
class ModelRecord:
    """The class and the arguments of a model, and what came with its weights.

    A `Classifier` and its first layer share one, so that `keras.Model(vit.input, ...)`, in which
    no `vit` is left, still knows them. Such a model is saved with it.

    Attributes:
        model_class: a subclass of `Classifier`.
        variant: the dataclass of its architecture, as it was built.
        image_size, num_classes, channels, head_bias: as in `VisionTransformer`.
        dtype_policy: the dtype policy; the constructor takes all that Keras takes for one.
        options: the other arguments of the constructor, without those of the architecture.
        preprocessing, class_names, label_set, reading, weights_from: as in `VisionTransformer`.

    Raises:
        ValueError: an image size or a number that cannot be, or float64 where the backend cuts it.
    """

    model_class: type
    variant: Any
    image_size: int | tuple[int, int]
    num_classes: int
    channels: int
    head_bias: float = 0.0
    dtype_policy: Any = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    preprocessing: Preprocessing = dataclasses.field(default_factory=Preprocessing)
    class_names: tuple[str, ...] | None = None
    label_set: str | None = None
    reading: str | None = None
    weights_from: str | None = None

    def __post_init__(self):
        self.views = {}  # names of the layers of a graph around -> the model that shares them
        self.image_size = pair(self.image_size, "image_size")
        self.num_classes = positive_int(self.num_classes, "num_classes") if self.num_classes else 0
        self.channels = positive_int(self.channels, "channels")
        policy = keras.dtype_policies.get(self.dtype_policy or keras.config.dtype_policy())
        self.dtype_policy = own_policy(policy)
        given = keras.backend.standardize_dtype(keras.ops.convert_to_tensor(np.zeros(())).dtype)
        if given != "float64" and any(p.compute_dtype == "float64" for p in policies_in(policy)):
            raise ValueError(
                f"The backend cuts float64 down to {given}. Received: dtype policy "
                f"{policy.name!r}; with JAX, set the environment variable JAX_ENABLE_X64=1 before "
                "Python starts."
            )

    @property
    def input_dtype(self):
        """The type of pixels; half precision would lose their digits before any layer."""
        return "float64" if self.dtype_policy.compute_dtype == "float64" else "float32"

    def image_input(self, any_size):
        size = (None, None) if any_size else self.image_size
        return keras.Input((*size, self.channels), dtype=self.input_dtype, name="images")

    def config_of(self, model):
        """The config of a model whose record this is, or of the record itself."""
        return {
            **{name: getattr(model, name) for name in SETTINGS},
            **self.options,
            **dataclasses.asdict(model.variant),
            "dtype": keras.dtype_policies.serialize(model.dtype_policy),
            "preprocessing": self.preprocessing.to_config(),
            **{name: getattr(model, name) for name in CAME_WITH_WEIGHTS},
        }

    def get_config(self):
        """The config and the registered class of the model, for JSON."""
        name = keras.saving.get_registered_name(_registered(self.model_class))
        return {"model_class": name, **self.config_of(self)}

    @classmethod
    def from_config(cls, config):
        config, attributes = came_with_weights(config)
        model_class = keras.saving.get_registered_object(config.pop("model_class"))
        settings = {name: config.pop(name) for name in SETTINGS}
        policy, names = config.pop("dtype"), argument_names(model_class)
        options = {name: config.pop(name) for name in names if name in config}
        return cls(
            model_class,
            model_class.variant_of(**config),
            **settings,
            dtype_policy=policy,
            options=options,
            **attributes,
        )


def records_in(model):
    """The `ModelRecord` of each network in a model, once, in the order of its layers."""
    records = (getattr(layer, "model_record", None) for layer in model._flatten_layers())
    return list({id(each): each for each in records if isinstance(each, ModelRecord)}.values())


def keep_size(model, data):
    """Gives a model of images of any size the size of the data, as later images must have it.

    That of a `VisionTransformer` is the one that its positions are for: a warning tells of another.
    """
    trained, shape = getattr(model, "student", model), tuple(getattr(data, "shape", ()))[1:]
    shape, expected = getattr(data, "image_shape", shape), getattr(trained, "input_shape", ())[1:]
    layers = getattr(trained, "layers", ())  # of which the first one gets the images
    layers = (layer for layer in layers if not isinstance(layer, keras.layers.InputLayer))
    record, size = getattr(next(layers, None), "model_record", None), tuple(shape[:2])
    is_open = len(shape) == len(expected) == 3 and None in expected[:2]
    # Keras refuses images of other channels a moment later.
    if record is None or not is_open or size == record.image_size or shape[2] != expected[2]:
        return
    if not hasattr(record.variant, "position"):
        record.image_size = size
        return
    warnings.warn(
        f"{model.name} is trained on images of another size than predictions are made of. "
        f"Received: {size}, and image_size={record.image_size}; to have one, build it for that "
        f"size, or train keras_vit.resize(model, image_size={size}).",
        stacklevel=4,
    )


def open_saved(path):
    """The model of a .keras file, not compiled, whose `loss` still tells how it was trained.

    Of a loss that is the user's own code, `loss` has the name. A ValueError tells of other such
    code in the file, without which it does not open.
    """
    try:
        model = keras.saving.load_model(path, compile=False)
    except TypeError as error:
        if not (code := re.search(r"Could not locate (\w+ '\w+')", str(error))):
            raise
        raise ValueError(
            f"A .keras file opens where all of its code is known. Received: {str(path)!r} with "
            f"the {code[1]}, which is your own: register it with "
            "keras.saving.register_keras_serializable, and open the file in a program of yours."
        ) from error
    with zipfile.ZipFile(path) as archive:
        config = json.loads(archive.read("config.json")).get("compile_config") or {}
    model.loss = _loss_of(config.get("loss"))
    return model


def _loss_of(config):
    """The loss of a config, by head as in `compile`, or the name of what only code can tell."""
    if isinstance(config, dict) and "class_name" not in config:
        return {head: _loss_of(one) for head, one in config.items()}
    if isinstance(config, list):
        return [*map(_loss_of, config)]
    try:
        return keras.saving.deserialize_keras_object(config)
    except (TypeError, ValueError):
        is_function = config["class_name"] == "function"
        return config["config"] if is_function else config["class_name"]


def argument_names(model_class):
    """The names of a model's arguments, without those of its architecture."""
    parameters = inspect.signature(model_class).parameters.values()
    return [each.name for each in parameters if each.kind is not each.VAR_KEYWORD]


def came_with_weights(config):
    """A config without what came with the weights of its model, and that as a dict of attributes.

    Configs of older files lack some of it.
    """
    config = dict(config)
    attributes = {name: config.pop(name, None) for name in CAME_WITH_WEIGHTS}
    attributes["preprocessing"] = Preprocessing.from_config(config.pop("preprocessing", None) or {})
    attributes["class_names"] = map_heads(lambda n: n and tuple(n), attributes["class_names"])
    return config, attributes


def _registered(model_class):
    """The class, or the first of its base classes that is registered under its own name."""
    object_of, name_of = keras.saving.get_registered_object, keras.saving.get_registered_name
    return next(each for each in model_class.__mro__ if object_of(name_of(each)) is each)


def recorded(name, of_head=False):
    """An attribute of a model that its record holds; with `of_head`, `None` without that head.

    A reading and class names are checked where they are set, in a model of several heads by head.
    """

    def read(self):
        lacks_it = of_head and self.num_classes != self.model_record.num_classes
        return None if lacks_it else getattr(self.model_record, name)

    def write(self, value):
        counts, check = self.num_classes, _CHECKS.get(name)
        if check and value is not None and isinstance(counts, dict):
            by_head = for_each(counts, **{name: value})
            value = {head: each[name] for head, each in by_head.items() if each}
            value = map_heads(lambda one, count: one and check(one, count), value, counts)
        elif check and value is not None:
            value = check(value, counts)
        setattr(self.model_record, name, value)

    return property(read, write)


def _reading(reading, count):
    check_choice("reading", reading, READINGS)
    return reading


def _names(names, count):
    """One output may be that of two classes; a model without a head keeps names for none."""
    return output_names(names, (1, 2) if count == 1 else (count or len(names),))


_CHECKS = {"reading": _reading, "class_names": _names}
