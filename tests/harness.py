"""Every layer of `keras_vit.layers` with its inputs, its variables and its definition in NumPy.

`tests/layers/test_every_layer.py` takes each of these cases through the same life: build, call,
describe itself, be saved, be trained, be computed in every precision.
"""

import dataclasses
from collections.abc import Callable

import keras
import numpy as np

from keras_vit import layers
from tests import definitions
from tests.support import forward, randomize

LINEAR = ("kernel", "bias")
NORM = ("gamma", "beta")
TOKENS = (2, 5, 8)  # few different shapes: every new one is compiled again on JAX
GRID = (2, 2)


def under(name, variables):
    return tuple(f"{name}/{variable}" for variable in variables)


ATTENTION = tuple(path for name in ("query", "key", "value", "out") for path in under(name, LINEAR))
MLP = (*under("dense_1", LINEAR), *under("dense_2", LINEAR))
NORMS = (*under("norm_1", NORM), *under("norm_2", NORM))
BLOCK = (*NORMS, *under("attention", ATTENTION), *under("mlp", MLP))
OPTIONS = {"num_heads": 2, "mlp_dim": 12, "gelu": "erf", "qkv_bias": False, "epsilon": 1e-3}
OPTIONS |= {"dropout": 0.1, "attention_dropout": 0.2, "stochastic_depth": 0.3}
QKV_BIAS = [f"attention/{name}/bias" for name in ("query", "key", "value")]
WITHOUT_QKV_BIAS = tuple(path for path in BLOCK if path not in QKV_BIAS)


@dataclasses.dataclass(frozen=True)
class Case:
    """One layer.

    Attributes:
        name: of the case.
        layer: the class.
        arguments: of its constructor.
        definition: NumPy function of the weights (path below the layer -> array) and the inputs.
        variables: paths of the trainable variables, in any order.
        inputs: argument of `call` -> shape; the first is given by position.
    """

    name: str
    layer: type
    arguments: dict
    definition: Callable
    variables: tuple = ()
    inputs: dict = dataclasses.field(default_factory=lambda: {"x": TOKENS})

    def __str__(self):
        return self.name

    def arrays(self, dtype="float32"):
        """Inputs with a mean and a spread."""
        rng = np.random.default_rng(1)
        return [rng.normal(0.3, 1.0, shape).astype(dtype) for shape in self.inputs.values()]

    def tensors(self, dtype="float32"):
        return [keras.ops.convert_to_tensor(x) for x in self.arrays(dtype)]

    def symbols(self, dtype="float32"):
        """Symbolic inputs of any batch size; positions have no batch."""
        return [
            keras.Input(batch_shape=shape, dtype=dtype, name=name)
            if name in ("bias", "distances")
            else keras.Input(shape[1:], dtype=dtype, name=name)
            for name, shape in self.inputs.items()
        ]

    def make(self, dtype=None):
        return self.layer(**self.arguments, dtype=dtype, name="layer")

    def call(self, layer, inputs):
        first, *others = inputs
        return layer(first, **dict(zip(list(self.inputs)[1:], others)))

    def built(self, dtype=None):
        """The layer with random weights, which are the same for every precision."""
        layer = self.make(dtype)
        self.call(layer, self.symbols("float64" if dtype == "float64" else "float32"))
        return randomize(layer)

    def outputs(self, layer, dtype="float32"):
        first, *others = self.tensors(dtype)
        return forward(layer, first, **dict(zip(list(self.inputs)[1:], others)))

    def expected(self, weights):
        return self.definition(weights, *self.arrays("float64"))


def einsum(equation):
    return lambda w, x: np.einsum(equation, x, w["kernel"]) + w["bias"]


def add_position(kind):
    def define(w, x):
        return x + definitions.position_table(w, kind, GRID, x.shape[-1], learned_tokens=1)

    return define


def encode_patches(w, x):
    x = x @ w["projection/kernel"] + w["projection/bias"]
    x = np.concatenate([np.repeat(w["class_token"], len(x), axis=0), x], axis=1)
    return x + w["position/embedding"]


CASES = [
    Case(
        "Patches",
        layers.Patches,
        {"patch_size": (2, 3)},
        lambda w, x: definitions.patches(x, (2, 3)),
        inputs={"images": (2, 4, 6, 3)},
    ),
    Case(
        "PatchEncoder",
        layers.PatchEncoder,
        {"width": 8, "grid": GRID, "dropout": 0.1},
        encode_patches,
        (*under("projection", LINEAR), "class_token", "position/embedding"),
        {"patches": (2, 4, 12)},
    ),
    Case(
        "PatchEncoder_bare",
        layers.PatchEncoder,
        {"width": 8, "grid": GRID, "class_token": False, "position": "none"},
        lambda w, x: x @ w["projection/kernel"] + w["projection/bias"],
        under("projection", LINEAR),
        {"patches": (2, 4, 12)},
    ),
    *(
        Case(
            f"PositionEmbedding_{kind}",
            layers.PositionEmbedding,
            {"kind": kind, "grid": GRID},
            add_position(kind),
            variables,
        )
        for kind, variables in (
            ("learned_1d", ("embedding",)),
            ("learned_2d", ("rows", "columns")),
            ("sincos_2d", ()),
        )
    ),
    Case(
        "RelativePosition",
        layers.RelativePosition,
        {"num_heads": 2},
        lambda w, x: w["embedding"],
        ("embedding",),
    ),
    Case(
        "Linear",
        layers.Linear,
        {"equation": "btd,df->btf", "output_shape": (None, 12), "bias_axes": "f"},
        einsum("btd,df->btf"),
        LINEAR,
    ),
    Case(
        "Linear_heads",
        layers.Linear,
        {"equation": "btd,dhk->bthk", "output_shape": (None, 2, 4), "bias_axes": "hk"},
        einsum("btd,dhk->bthk"),
        LINEAR,
    ),
    Case(
        "Linear_from_heads",
        layers.Linear,
        {"equation": "bthk,hkd->btd", "output_shape": (None, 8), "bias_axes": "d"}
        | {"activation": "relu"},
        lambda w, x: np.maximum(einsum("bthk,hkd->btd")(w, x), 0),
        LINEAR,
        {"x": (2, 5, 2, 4)},
    ),
    Case("LayerNorm", layers.LayerNorm, {}, definitions.layer_norm, NORM),
    *(
        Case(
            f"MLP_{kind}",
            layers.MLP,
            {"hidden_dim": 12, "gelu": kind, "dropout": 0.1},
            lambda w, x, kind=kind: definitions.mlp(w, x, kind),
            MLP,
        )
        for kind in ("tanh", "erf")
    ),
    Case(
        "MultiHeadSelfAttention",
        layers.MultiHeadSelfAttention,
        {"num_heads": 2},
        definitions.attention,
        ATTENTION,
    ),
    Case(
        "RelativeAttention",
        layers.RelativeAttention,
        {"num_heads": 2, "dropout": 0.1},
        lambda w, x, table: definitions.attention(w, x, distances=table),
        ATTENTION,
        {"x": TOKENS, "distances": (9, 4)},
    ),
    Case(
        "MultiHeadSelfAttention_memory",
        layers.MultiHeadSelfAttention,
        {"num_heads": 2, "qkv_bias": False},
        definitions.attention,
        ("query/kernel", "key/kernel", "value/kernel", *under("out", LINEAR)),
        {"x": (2, 1, 8), "memory": TOKENS},
    ),
    Case("Dropout", layers.Dropout, {"rate": 0.3}, lambda w, x: x),
    Case("StochasticDepth", layers.StochasticDepth, {"rate": 0.3, "seed": 4}, lambda w, x: x),
    Case(
        "TransformerBlock",
        layers.TransformerBlock,
        {"num_heads": 2, "mlp_dim": 12},
        definitions.block,
        BLOCK,
    ),
    Case(
        "TransformerBlock_options",
        layers.TransformerBlock,
        OPTIONS,
        lambda w, x: definitions.block(w, x, kind="erf", epsilon=1e-3),
        WITHOUT_QKV_BIAS,
    ),
    *(
        Case(
            f"{cls.__qualname__}_distances",
            cls,
            OPTIONS,
            lambda w, x, table: definitions.block(w, x, table, kind="erf", epsilon=1e-3),
            WITHOUT_QKV_BIAS,
            {"x": TOKENS, "distances": (9, 4)},
        )
        for cls in (layers.ExtendedBlock, layers.RematExtendedBlock)
    ),
    Case(
        "RematTransformerBlock",
        layers.RematTransformerBlock,
        {"num_heads": 2, "mlp_dim": 12, "stochastic_depth": 0.3},
        definitions.block,
        BLOCK,
    ),
    *(
        Case(f"TokenPool_{pool}", layers.TokenPool, {"pool": pool, "class_token": True}, definition)
        for pool, definition in (
            ("token", lambda w, x: x[:, 0]),
            ("mean", lambda w, x: x[:, 1:].mean(axis=1)),
        )
    ),
    Case(
        "AttentionPool",
        layers.AttentionPool,
        {"num_heads": 2, "mlp_dim": 12},
        definitions.attention_pool,
        ("probe", *under("attention", ATTENTION), *under("norm", NORM), *under("mlp", MLP)),
    ),
]

# softmax does not change when every score of a query grows by the same q · b_key
NO_GRADIENT = ("key/bias", "key_norm/beta")
