"""What families after the paper changed, as data: one field for each thing that varies."""

import dataclasses

from keras_vit.checks import check_choices, choice, pair, positive_float, positive_int
from keras_vit.text import brief

# Tables of `keras_vit.layers.extensions` have layers under these names.
NORMS = ("layer_norm", "rms_norm")
BLOCKS = ("pre_norm", "post_norm", "add_norm", "parallel", "axial")
MLPS = ("mlp", "swiglu")
ACTIVATIONS = ("gelu_tanh", "gelu_erf", "quick_gelu", "silu")
BIASES = {  # the linear maps of a block that have a bias
    "all": ("query", "key", "value", "out", "mlp"),
    "no_key": ("query", "value", "out", "mlp"),
    "qkv": ("query", "key", "value"),
    "attention": ("query", "key", "value", "out"),
    "no_out": ("query", "key", "value", "mlp"),
    "none": (),
}


@dataclasses.dataclass(frozen=True)
class Rotary:
    """The angles by which queries and keys are turned (Su et al., 2021).

    A head has D_h / 2 pairs of values. The row of a patch turns half of them and its column the
    other half, at frequencies from 1 down to about 1 / temperature.

    Args:
        places: `"index"`, rows and columns counted from 0, or `"centered"`, the middles of the
            patches from -1 to 1 times 2 pi.
        temperature: the inverse of the lowest frequency.
        reference: (rows, columns) of the grid on which rows and columns are counted; `None` for the
            grid of the image.
        offset: added to the counted rows and columns.
        order: whether `"rows"` or `"columns"` come first in a head.
        pairs: values that are turned together: `"adjacent"` (x_0 with x_1) or `"halves"` (x_0 with
            the first one of the second half).
        learned: whether each head of each block learns its frequencies; row and column then turn
            every pair together (Heo et al., 2024).
    """

    places: str = choice("index", ("index", "centered"))
    temperature: float = 10_000.0
    reference: tuple[int, int] | None = None
    offset: float = 0.0
    order: str = choice("rows", ("rows", "columns"))
    pairs: str = choice("adjacent", ("adjacent", "halves"))
    learned: bool = False

    def __post_init__(self):
        check_choices(self)
        positive_float(self.temperature, "temperature")
        if self.reference is not None:
            object.__setattr__(self, "reference", pair(self.reference, "reference"))


ROTARIES = {
    "dinov3": Rotary("centered", 100.0, pairs="halves"),  # Siméoni et al., 2025
    "eva02": Rotary(reference=(16, 16)),  # Fang et al., 2023
    "axial": Rotary(temperature=100.0, order="columns"),  # Heo et al., 2024
    "mixed": Rotary(temperature=10.0, order="columns", learned=True),  # the same
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extensions:
    """What families after the paper changed; the defaults are the paper's.

    Args:
        norm: `"layer_norm"`, or `"rms_norm"`, which has no mean and no beta (Zhang and Sennrich,
            2019).
        block: where the norms are. `"pre_norm"`: before attention and MLP, as in the paper.
            `"post_norm"`: after them, before the sums (Liu et al., 2022). `"add_norm"`: after the
            sums (Vaswani et al., 2017). `"parallel"`: attention and MLP read one norm and are added
            at once (Dehghani et al., 2023). `"axial"`: two layers, one with attention along the
            rows of the patches and one along the columns, each with an MLP (appendix D.6).
        mlp: `"mlp"`, or `"swiglu"`, whose hidden layer has a gate (Shazeer, 2020).
        activation: of the hidden layer of the MLP: `"gelu_tanh"`, `"gelu_erf"`, `"quick_gelu"` or
            `"silu"`; `None` means the GELU that `Variant.gelu` names, and silu in a gate.
        layer_scale: initial value of a learned factor for each channel of a residual branch
            (Touvron et al., 2021), or `None` for no such factors.
        qk_norm: norm of queries and keys, a name of `norm` or `None`.
        mlp_norm: norm of the hidden layer of the MLP, likewise.
        attention_norm: norm of the joined heads.
        patch_norm: norm of the patches' tokens before positions are added.
        pre_norm: norm before the first block.
        final_norm: whether a norm follows the last block; `None` means yes, except after
            `"add_norm"` blocks, which end with one.
        biases: the linear maps of a block that have a bias: `"all"`; `"no_key"`, all but the key;
            `"qkv"`, query, key and value; `"attention"`, these and the output of the attention;
            `"no_out"`, all but that output; or `"none"`. `Variant.qkv_bias=False` takes the bias
            from query, key and value.
        patch_bias: whether the projection of the patches has a bias.
        rotary: positions by which queries and keys are turned: a `Rotary`, a name of `ROTARIES`,
            a dict of its fields, or `None`. `Variant.position` is added beside them unless it is
            `"none"`.
        distillation: whether a second token with a second head follows the class token; the logits
            are the mean of both heads (Touvron et al., 2021).
        pool_heads, pool_mlp_dim: heads and hidden units of attention pooling; `None` means those
            of the blocks.
        pool_patches: whether attention pooling reads the patches only.
        projection: units of a linear map without bias after the pooling, into the space that images
            and texts share (Radford et al., 2021), or `None`.
    """

    norm: str = choice("layer_norm", NORMS)
    block: str = choice("pre_norm", BLOCKS, compared=True)
    mlp: str = choice("mlp", MLPS)
    activation: str | None = choice(None, (None, *ACTIVATIONS), compared=True)
    layer_scale: float | None = choice(None)
    qk_norm: str | None = choice(None, (None, *NORMS))
    mlp_norm: str | None = choice(None, (None, *NORMS))
    attention_norm: str | None = choice(None, (None, *NORMS))
    patch_norm: str | None = choice(None, (None, *NORMS))
    pre_norm: str | None = choice(None, (None, *NORMS))
    final_norm: bool | None = choice(None, follows="block")
    biases: str = choice("all", tuple(BIASES))
    patch_bias: bool = choice(True)
    rotary: Rotary | str | dict | None = choice(None, compared=True)  # noqa: RUF009
    distillation: bool = choice(False)
    pool_heads: int | None = choice(None, compared=True)
    pool_mlp_dim: int | None = choice(None)
    pool_patches: bool = choice(False, compared=True)
    projection: int | None = choice(None)

    def __post_init__(self):
        check_choices(self)
        if self.layer_scale is not None:
            positive_float(self.layer_scale, "layer_scale")
        for name in ("pool_heads", "pool_mlp_dim", "projection"):
            if getattr(self, name) is not None:
                positive_int(getattr(self, name), name)
        if self.block == "post_norm" and self.layer_scale is not None:
            raise ValueError(
                "The norms of a post_norm block scale its branches already. Received: "
                f"layer_scale={self.layer_scale}, block='post_norm'; choose layer_scale=None."
            )
        if self.block == "add_norm" and self.final_norm:
            raise ValueError(
                "An add_norm block ends with a norm, and a second one would undo its scale. "
                "Received: final_norm=True, block='add_norm'; choose final_norm=False or None."
            )
        if self.final_norm is None:
            object.__setattr__(self, "final_norm", self.block != "add_norm")
        object.__setattr__(self, "rotary", get_rotary(self.rotary))

    def has_bias(self, name):
        """Whether the linear maps of a name of `BIASES` have a bias."""
        return name in BIASES[self.biases]

    @property
    def extensions(self):
        """The fields of `Extensions` alone."""
        return Extensions(**{name: getattr(self, name) for name in EXTENSIONS})


EXTENSIONS = tuple(field.name for field in dataclasses.fields(Extensions))


def check_exclusions(v):
    """Raises a ValueError where fields of a `Variant` exclude each other."""
    rules = {  # rule -> (whether it is broken, the fields that it names)
        "pool='token' and 'token_mean' need class_token=True, and pool='first' needs a model "
        "without learned tokens; choose pool='mean', 'map', 'first' or None for a model without "
        "class token.": (
            (v.pool in ("token", "token_mean") and not v.class_token)
            or (v.pool == "first" and v.learned_tokens),
            "pool class_token registers distillation",
        ),
        "Relative positions belong to the attention of a block, and have no place at the input; "
        "choose position_at='every_layer' or 'shared'.": (
            v.is_relative and v.position_at == "input",
            "position position_at",
        ),
        "Blocks have rotary positions or others, not both; beside rotary ones choose "
        "position_at='input', without relative positions, or position='none'.": (
            v.has_positions_in_blocks and v.rotary,
            "rotary position position_at",
        ),
        "norm_after_pool needs pool='token' or 'mean', and final_norm=True.": (
            v.norm_after_pool and (v.pool not in ("token", "mean") or not v.final_norm),
            "norm_after_pool pool final_norm",
        ),
        "A distillation token needs pool='token', and nothing between pooling and heads.": (
            v.distillation and (v.pool != "token" or v.representation_size or v.projection),
            "distillation pool representation_size projection",
        ),
        "block='axial' needs class_token=False, so a pool such as 'mean', and no registers, "
        "distillation, relative or rotary positions.": (
            v.block == "axial" and (v.learned_tokens or v.is_relative or v.rotary),
            "pool class_token registers distillation position rotary",
        ),
        "position='relative_2d' has a place for a class token, and for no other learned token.": (
            v.position == "relative_2d" and (v.registers or v.distillation),
            "registers distillation",
        ),
    }
    for requirement, (is_missed, names) in rules.items():
        if is_missed:
            received = ", ".join(f"{name}={getattr(v, name)!r}" for name in names.split())
            raise ValueError(f"{requirement} Received: {received}.")


def get_extensions(extensions=None):
    """The `Extensions` that `extensions` stands for: itself, a dict of its fields, or `None`."""
    return extensions if isinstance(extensions, Extensions) else Extensions(**(extensions or {}))


def get_rotary(rotary):
    """The `Rotary` that `rotary` stands for: itself, a name, a dict of its fields, or `None`."""
    if rotary is None or isinstance(rotary, Rotary):
        return rotary
    if isinstance(rotary, dict):
        return Rotary(**rotary)
    if isinstance(rotary, str) and rotary in ROTARIES:
        return ROTARIES[rotary]
    raise ValueError(
        f"Unknown rotary. Received: rotary={brief(rotary)}; expected one of {list(ROTARIES)}, "
        "a keras_vit.Rotary, a dict of its fields, or None."
    )
