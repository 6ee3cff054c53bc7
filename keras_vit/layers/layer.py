"""The base class of the layers, and a stand-in for a layer that an architecture lacks."""

import copy
import dataclasses
import inspect
import itertools
import threading

import keras

from keras_vit.layers import kernels
from keras_vit.layers.changed_layers import Changeable


class _Called(threading.local):
    def __init__(self):  # in each thread; of a class, PyTorch 2.11 would compile the default
        self.policy = None


# On PyTorch, the dtype policy of the model or layer that runs now. Its parts run without the
# `__call__` of Keras, which takes 50 to 200 microseconds for each, up to a fifth of an inference of
# one image. Other backends run it once, when they trace a program.
CALLED = _Called()


def run_within(policy, function, *args, **kwargs):
    """What a function returns that calls the parts of a model or layer of a dtype policy."""
    outer, CALLED.policy = CALLED.policy, policy if kernels.BACKEND == "torch" else None
    try:
        return function(*args, **kwargs)
    finally:
        CALLED.policy = outer


class FloatInputs:
    """Lets a layer of Keras take integers and booleans as the numbers that they are.

    Keras casts floats to the type in which a layer computes, and here integers too. A layer that
    keeps floats as they come (`autocast=False`) gets integers as float32 at least, unrounded.
    """

    integers = ()  # arguments of `call` that count or index something, and become int32
    ignores_training = False  # in its own `call`, which may have the argument for Keras's methods

    def __call__(self, *args, **kwargs):
        if CALLED.policy is not None and self.adds_nothing(args, kwargs):
            if "training" not in self.call_signature_parameters:
                kwargs.pop("training", None)
            return self.call(*args, **kwargs)
        args, kwargs = self.taken(args, kwargs)
        return run_within(self.dtype_policy, super().__call__, *args, **kwargs)

    def adds_nothing(self, args, kwargs):
        """Whether Keras's `__call__` does no more than `call` within what runs now.

        `__call__` builds, casts, hands `training` on from the layer around to a `call` that takes
        it and was not told, and serves hooks, regularizers and quantized kernels.
        """
        outer, names = CALLED.policy, self.call_signature_parameters
        is_plain = not (self.activity_regularizer or self.quantization_mode or has_hooks(self))
        is_cast = kernels.OWN.are_cast((*args, *kwargs.values()), outer.compute_dtype)
        wants_training = "training" in names and not self.ignores_training
        is_told = "training" in kwargs or not wants_training
        return is_plain and is_cast and is_told and self.built and self.dtype_policy is outer

    def stateless_call(self, trainable_variables, non_trainable_variables, *args, **kwargs):
        args, kwargs = self.taken(args, kwargs)
        return super().stateless_call(trainable_variables, non_trainable_variables, *args, **kwargs)

    def taken(self, args, kwargs):
        """The arguments of a call as the layer takes them."""
        if not any(map(_needs_look, (*args, *kwargs.values()))):
            return args, kwargs
        names = itertools.chain(self.call_signature_parameters, itertools.repeat(None))
        args = [self._in_its_type(name, x) for x, name in zip(args, names)]
        return args, {name: self._in_its_type(name, x) for name, x in kwargs.items()}

    def _in_its_type(self, name, value):
        dtype = self.input_dtype if self.autocast else kernels.at_least_float32(self.input_dtype)
        dtype = "int32" if name in self.integers else dtype

        def cast(x):
            # A symbol stays as it is, because a cast would become a layer of a Functional model.
            is_symbol = isinstance(x, keras.KerasTensor)
            return keras.ops.cast(x, dtype) if not is_symbol and _is_integer(x) else x

        return keras.tree.map_structure(cast, value)


def has_hooks(layer):
    """Whether users of PyTorch have something called at a layer, forwards or backwards."""
    return bool(
        layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
        or kernels.OWN.has_global_hooks()
    )


def _needs_look(x):
    """Whether something may be, or hold, a tensor of integers."""
    return isinstance(x, (list, tuple, dict)) or _is_integer(x)


def _is_integer(x):
    dtype = keras.backend.standardize_dtype(x.dtype) if hasattr(x, "dtype") else ""
    return dtype.startswith(("int", "uint", "bool"))


# For files of earlier versions, filled in by `extensions.earlier`: functions that change a config
# in place, and return the class that takes it now.
EARLIER_CONFIGS = []


@keras.saving.register_keras_serializable("keras_vit")
class Layer(Changeable, FloatInputs, keras.layers.Layer):
    """A layer whose config is the arguments of its constructor.

    `compute_output_spec` describes its output, which has the shape of its input unless a subclass
    says otherwise; `compute_output_shape` follows from it.
    """

    model_record = None  # the `ModelRecord` of the model whose first layer this is

    def __new__(cls, *args, **kwargs):
        bound = inspect.signature(cls.__init__).bind(None, *args, **kwargs)
        bound.apply_defaults()
        arguments = {**bound.arguments, **bound.arguments.get("kwargs", {})}
        layer = super().__new__(cls, *args, **kwargs)
        layer._arguments = {k: v for k, v in arguments.items() if k not in ("self", "kwargs")}
        return layer

    def compute_output_spec(self, *args, **kwargs):
        x = args[0] if args else kwargs[self.call_signature_parameters[0]]
        return keras.tree.map_structure(lambda each: self._output(each.shape), x)

    def compute_output_shape(self, input_shape, **shapes):
        """The shape of the output for the inputs' shapes, by Keras's names (`memory_shape`)."""
        x, shapes = keras.tree.map_shape_structure(self._output, (input_shape, shapes))
        others = {name.removesuffix("_shape"): other for name, other in shapes.items()}
        return keras.tree.map_structure(lambda y: y.shape, self.compute_output_spec(x, **others))

    def _output(self, shape, dtype=None):
        return keras.KerasTensor(shape, dtype or self.compute_dtype)

    def get_config(self):
        is_data, as_dict = dataclasses.is_dataclass, dataclasses.asdict
        config = super().get_config()
        for name, x in self._arguments.items():
            config.setdefault(name, as_dict(x) if is_data(x) else x)
        if self.model_record:
            config["origin"] = keras.saving.serialize_keras_object(self.model_record)
        return config

    @classmethod
    def from_config(cls, config):
        current, config = cls, copy.copy(config)
        record = config.pop("origin", None)
        for translate in EARLIER_CONFIGS:
            current = translate(current, config)
        layer = super(Layer, current).from_config(config)
        layer.model_record = record and keras.saving.deserialize_keras_object(record)
        return layer


class Identity:
    """Returns its input. It is no Keras layer, because a call of one shows in small batches."""

    rate = 0.0  # of what is dropped

    def __init__(self, *args, **kwargs):
        pass

    def build(self, input_shape):
        pass

    def __call__(self, x, training=False):
        return x
