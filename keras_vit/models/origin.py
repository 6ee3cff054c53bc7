"""What a model is besides its graph. Its first layer keeps it where users take layers alone."""

import dataclasses
from typing import Any

import keras

from keras_vit.heads import map_heads
from keras_vit.preprocessing import Preprocessing


@keras.saving.register_keras_serializable("keras_vit")
@dataclasses.dataclass
class Origin:
    """The class and the arguments of a model, and what came with its weights.

    A `Classifier` and its first layer share one, so that `keras.Model(vit.input, ...)`, in which
    no `vit` is left, still knows them. Such a model is saved with it.

    Attributes:
        model_class: a subclass of `Classifier`.
        variant: the dataclass of its architecture, as it was built.
        settings: what `check_settings` of `keras_vit.models.classifier` returned.
        options: what else its constructor takes.
        preprocessing, class_names, label_set, reading, weights_from: as in `VisionTransformer`.
    """

    model_class: type
    variant: Any
    settings: dict[str, Any]
    options: dict[str, Any]
    preprocessing: Preprocessing
    class_names: tuple[str, ...] | None = None
    label_set: str | None = None
    reading: str | None = None
    weights_from: str | None = None

    def __post_init__(self):
        self.views = {}  # names of the layers of a graph around -> the model that shares them

    def get_config(self):
        """The config of the model, as JSON can hold it, and its registered class."""
        return {
            "model_class": keras.saving.get_registered_name(_registered(self.model_class)),
            **{name: self.settings[name] for name in self.settings if name != "dtype_policy"},
            **self.options,
            **dataclasses.asdict(self.variant),
            "dtype": keras.dtype_policies.serialize(self.settings["dtype_policy"]),
            "preprocessing": self.preprocessing.to_config(),
            **{name: getattr(self, name) for name in CAME_WITH_WEIGHTS},
        }

    @classmethod
    def from_config(cls, config):
        config, attributes = came_with_weights(config)
        model_class = keras.saving.get_registered_object(config.pop("model_class"))
        return cls(*model_class.parts_of(**config), **attributes)


# The attributes that a model gets from weights or training, besides `preprocessing`.
CAME_WITH_WEIGHTS = ("class_names", "label_set", "reading", "weights_from")


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
    """The class, or the first of those it is made of, that files name."""
    named = lambda c: keras.saving.get_registered_object(keras.saving.get_registered_name(c))  # noqa: E731
    return next(each for each in model_class.__mro__ if named(each) is each)


def kept(name):
    """The attribute of a model that its origin holds; none of a head that the model lacks."""

    def read(self):
        is_of_head = name in ("class_names", "label_set", "reading")
        lacks = is_of_head and self.num_classes != self.origin.settings["num_classes"]
        return None if lacks else getattr(self.origin, name)

    def write(self, value):
        setattr(self.origin, name, value)

    return property(read, write)
