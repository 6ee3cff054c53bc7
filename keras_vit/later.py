"""What families after the paper changed in the blocks, as data."""

import dataclasses

from keras_vit.checks import check_choices, choice, positive_float

# Under these names, layers stand in tables of `keras_vit.layers`.
NORMS = ("layer_norm", "rms_norm")
MLPS = ("mlp", "swiglu")
ACTIVATIONS = ("gelu_tanh", "gelu_erf", "quick_gelu", "silu")
ROTARIES = ("dinov3",)
BIASES = {  # the linear maps of a block that have a bias
    "all": ("query", "key", "value", "out", "mlp"),
    "no_key": ("query", "value", "out", "mlp"),
    "none": (),
}


@dataclasses.dataclass(frozen=True)
class Later:
    """What families after the paper changed in the blocks; the defaults are the paper's.

    Args:
        norm: `"layer_norm"`, or `"rms_norm"` without mean and beta (Zhang and Sennrich, 2019).
        mlp: `"mlp"`, or `"swiglu"`, whose hidden layer has a gate (Shazeer, 2020).
        activation: of the hidden layer of the MLP: `"gelu_tanh"`, `"gelu_erf"`, `"quick_gelu"` or
            `"silu"`; `None` means the GELU that `Variant.gelu` names, and silu in a gate.
        layer_scale: initial value of a learned factor for each channel of a residual branch
            (Touvron et al., 2021), or `None` for no such factors.
        qk_norm: norm of queries and keys, a name of `norm`, or `None`.
        rotary: positions by which queries and keys are turned (Su et al., 2021): `"dinov3"`, or
            `None`. They come beside the position embedding; take `position="none"` for no other.
        pre_norm: norm between the embedding and the first block, a name of `norm`, or `None`.
        biases: which linear maps of a block have a bias: `"all"`, `"no_key"` for all but the key,
            or `"none"`. `Variant.qkv_bias=False` takes those of query, key and value away.
    """

    norm: str = choice("layer_norm", NORMS)
    mlp: str = choice("mlp", MLPS)
    activation: str | None = choice(None, (None, *ACTIVATIONS))
    layer_scale: float | None = None
    qk_norm: str | None = choice(None, (None, *NORMS))
    rotary: str | None = choice(None, (None, *ROTARIES))
    pre_norm: str | None = choice(None, (None, *NORMS))
    biases: str = choice("all", tuple(BIASES))

    def __post_init__(self):
        check_choices(self)
        if self.layer_scale is not None:
            positive_float(self.layer_scale, "layer_scale")

    def has_bias(self, name):
        """Whether the linear maps of a name of `BIASES` have a bias."""
        return name in BIASES[self.biases]

    def to_config(self):
        """The fields as a dict."""
        return dataclasses.asdict(self)

    def changes(self):
        """The fields that differ from the paper, as texts such as "norm='rms_norm'"."""
        mine, paper = self.to_config(), Later().to_config()
        return [f"{name}={mine[name]!r}" for name in mine if mine[name] != paper[name]]


LATER = tuple(field.name for field in dataclasses.fields(Later))


def get_later(later=None):
    """The `Later` that `later` stands for: itself, a dict of its fields, or `None`."""
    return later if isinstance(later, Later) else Later(**(later or {}))
