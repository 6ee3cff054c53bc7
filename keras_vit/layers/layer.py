"""The base class of the layers, and a stand-in for a layer that an architecture lacks."""

import dataclasses
import functools
import inspect

import keras


@keras.saving.register_keras_serializable("keras_vit")
class Layer(keras.layers.Layer):
    """A layer whose config is the arguments of its constructor.

    Its output has the shape of its input, unless a subclass says otherwise.
    """

    def __new__(cls, *args, **kwargs):
        layer = super().__new__(cls, *args, **kwargs)
        bound = _signature(cls).bind(layer, *args, **kwargs)
        bound.apply_defaults()
        further = bound.arguments.pop("kwargs", {})
        _, *arguments = bound.arguments.items()  # without self
        layer._arguments = dict(arguments) | further
        return layer

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        plain = {
            name: dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value
            for name, value in self._arguments.items()
        }
        return {**plain, **super().get_config()}


@functools.cache
def _signature(cls):
    return inspect.signature(cls.__init__)


class Identity:
    """Returns its input. It is no Keras layer, because a call of one shows in small batches."""

    rate = 0.0  # of what is dropped

    def __init__(self, *args, **kwargs):
        pass

    def build(self, input_shape):
        pass

    def __call__(self, x, training=False):
        return x
