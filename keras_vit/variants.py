"""The published Vision Transformers as data: one dataclass, one table.

A `Variant` holds every choice that decides which weights a model has and which function they
compute. What decides only how a model is used or trained (image size, number of classes,
dropout) is an argument of `keras_vit.VisionTransformer` instead.
"""

import dataclasses
import difflib
import re
from typing import Any

from keras_vit import checks
from keras_vit.checks import choice, grid_of, pair, positive_int
from keras_vit.extensions import Extensions, check_exclusions
from keras_vit.families import FAMILIES, SIZES

POOLS = ("token", "mean", "token_mean", "map", "probe", "first", None)
POSITIONS = ("learned_1d", "learned_2d", "sincos_2d", "relative", "relative_2d", "none")
GELUS = ("tanh", "erf")
INTERPOLATIONS = (
    "align_corners",
    "bilinear",
    "bilinear_antialias",
    "bicubic",
    "bicubic_no_antialias",
    "bicubic_align_corners",
)


@dataclasses.dataclass(frozen=True)
class Variant(Extensions):
    """The architecture of one Vision Transformer; the defaults are ViT-B/16 (Table 1).

    What later families added are further fields, by keyword: those of `Extensions`.

    Args:
        width: D, the length of a token.
        depth: L, the number of Transformer blocks.
        num_heads: k, the attention heads of a block; must divide `width`.
        mlp_dim: hidden units of the MLP of a block; `None` means 4 * width.
        patch_size: P, as an int or as (height, width), in pixels; behind a convolutional stem in
            cells of the feature map.
        pool: what the head sees: `"token"` the class token (Eq. 4), `"mean"` the average of the
            patch tokens, `"token_mean"` both, one after the other (DINOv2's linear heads), `"map"`
            multi-head attention pooling, `"probe"` the same without query projection and MLP
            (AIMv2), `"first"` the first patch (`pool_type="0"` of big_vision), `None` every token.
        class_token: whether a class token is prepended; `None` means yes for the pools `"token"`,
            `"token_mean"` and `None`.
        representation_size: units of the tanh layer before the head, which pre-training has
            (section 3.1), or `None` for no such layer.
        position: the position embedding of Table 8: `"learned_1d"`, `"learned_2d"`, `"relative"`,
            `"none"`; the fixed `"sincos_2d"` of the "better plain ViT" baseline; or
            `"relative_2d"`, a bias of attention for each offset of row and column (Bao et al.,
            2022).
        position_at: where it is added: `"input"`, once, before the blocks; `"every_layer"`, in each
            block one of its own; or `"shared"`, in each block the same one. `None` means `"input"`,
            and `"every_layer"` for relative positions, which belong to the attention.
        interpolation: how position embeddings are resampled for images of another size:
            `"align_corners"`, the authors' rule, or another of `keras_vit.layers.resize_matrix`.
        registers: number of register tokens between class token and patches (Darcet et al., 2024).
        norm_after_pool: whether the last LayerNorm follows the pooling (timm's `fc_norm`).
        gelu: `"tanh"`, the approximation that the authors' code uses, or `"erf"`, the exact form.
        stem: units of each stage of a ResNet in front of the patches, such as (3, 4, 9), in a
            hybrid (section 3.1); `()` for the root of a ResNet alone, `None` for no stem.
        stem_width: factor of the channels of the stem.
        stem_numerics: the constants of the stem, a name of `keras_vit.layers.resnet.NUMERICS`.
        stem_folded: whether the kernels of the stem are standardised already (`keras_vit.fold`).
        qkv_bias: whether the query, key and value projections have a bias.
        epsilon: added to the variance in every LayerNorm.
    """

    # A checkpoint decides a `choice`: `from_checkpoint("CLIP...")` brings its gelu and epsilon. Of
    # one that is `compared`, its weights fit either way, so that a report names what differs. One
    # that `follows` another field has its default again where `replace` changes that field.
    width: int = 768
    depth: int = 12
    num_heads: int = 12
    mlp_dim: int | None = dataclasses.field(default=None, metadata={"follows": "width"})
    patch_size: int | tuple[int, int] = 16
    pool: str | None = choice("token", POOLS, compared=True)
    class_token: bool | None = choice(None, follows="pool")
    representation_size: int | None = None
    position: str | None = choice("learned_1d", POSITIONS, compared=True)
    position_at: str | None = choice(None, ("input", "every_layer", "shared"), follows="position")
    interpolation: str = choice("align_corners", INTERPOLATIONS)
    registers: int = choice(0)
    norm_after_pool: bool = choice(False, compared=True)
    stem: tuple[int, ...] | None = None
    stem_width: float = 1.0
    stem_numerics: str = choice("google", ("google", "timm"), compared=True)
    stem_folded: bool = False
    gelu: str = choice("tanh", GELUS, compared=True)
    qkv_bias: bool = choice(True)
    epsilon: float = choice(1e-6, compared=True)

    def __post_init__(self):
        for name in ("width", "depth", "num_heads"):
            self._set(name, positive_int(getattr(self, name), name))
        checks.check_heads(self.width, self.num_heads)
        mlp_dim = 4 * self.width if self.mlp_dim is None else self.mlp_dim
        self._set("mlp_dim", positive_int(mlp_dim, "mlp_dim"))
        self._set("patch_size", pair(self.patch_size, "patch_size"))
        if self.class_token is None:
            self._set("class_token", self.pool in ("token", "token_mean", None))
        if self.representation_size is not None:
            positive_int(self.representation_size, "representation_size")
        self._set("position", "none" if self.position is None else self.position)
        if self.position_at is None:
            self._set("position_at", "every_layer" if self.is_relative else "input")
        if self.registers:
            self._set("registers", positive_int(self.registers, "registers"))
        if self.stem is not None:
            self._set("stem", checks.unit_counts(self.stem, "stem"))
        self._set("stem_width", checks.positive_float(self.stem_width, "stem_width"))
        checks.positive_float(self.epsilon, "epsilon")
        super().__post_init__()
        check_exclusions(self)

    def _set(self, name, value):
        object.__setattr__(self, name, value)  # of a frozen dataclass

    @property
    def is_relative(self):
        """Whether positions are part of the attention."""
        return self.position in ("relative", "relative_2d")

    @property
    def has_positions_in_blocks(self):
        """Whether blocks add positions, or attend by them, beside rotary ones."""
        return self.position_at != "input" and self.position != "none"

    @property
    def is_extended(self):
        """Whether `Network`, the paper's, lacks a part that the architecture has."""
        reads_one_vector = self.pool in ("token", "first", "mean")
        return (
            self.extensions != Extensions() or self.has_positions_in_blocks or not reads_one_vector
        )

    @property
    def learned_tokens(self):
        """Tokens that are no patches: those of class and distillation, and the registers."""
        return int(self.class_token) + int(self.distillation) + self.registers

    @property
    def block_layers(self):
        """The number of layers `block_0` and so on: `depth`, or twice that with axial blocks."""
        return 2 * self.depth if self.block == "axial" else self.depth

    def grid(self, image_size):
        """The (rows, columns) of patches of an image, whose size is in pixels.

        In a hybrid, patches are cut from the feature map of the stem, whose strides round up. Its
        last rows and columns that fill no patch are dropped, as by the authors' VALID convolution.

        Raises:
            ValueError: the patches do not tile the image, or the image is smaller than one patch.
        """
        if self.stem is None:
            return grid_of(image_size, self.patch_size, self.is_relative)
        size = pair(image_size, "image_size")
        feature_map = [-(-side // self._stem_stride) for side in size]
        grid = tuple(side // patch for side, patch in zip(feature_map, self.patch_size))
        if 0 in grid:
            least = tuple(self._stem_stride * (patch - 1) + 1 for patch in self.patch_size)
            raise ValueError(
                f"image_size must be at least {least}, for one patch of the stem's output. "
                f"Received: image_size={size}."
            )
        return checks.bounded(grid, size, self.is_relative)

    @property
    def _stem_stride(self):
        # The root halves the image twice, the first stage not at all, each later stage once.
        return 1 if self.stem is None else 2 ** (2 + max(len(self.stem) - 1, 0))

    @property
    def stride(self):
        """(height, width) in pixels between one patch and the next."""
        return tuple(side * self._stem_stride for side in self.patch_size)

    def replace(self, **choices):
        """A copy with the named fields changed; those that follow them have their defaults again.

        So a model of another width has an MLP of 4 times this width, unless `mlp_dim` is given too.
        """
        checks.check_names(self, choices)
        fields = dataclasses.fields(self)
        followers = [field for field in fields if field.metadata.get("follows") in choices]
        defaults = {field.name: field.default for field in followers}
        return dataclasses.replace(self, **(defaults | choices))


def _table():
    table = {}
    for name in "Ti/16 S/32 S/16 B/32 B/16 B/8 L/32 L/16 H/14 g/14 G/14 So400m/14".split():
        size, patch = name.split("/")
        table[name] = Variant(**_numbers(size), patch_size=int(patch))
    # Section 3.1 and Table 6: R50 with its stage 4 merged into stage 3, or the whole R50; the small
    # ones are from "How to train your ViT?". The number of a name is the stride in pixels.
    for stem, units, sizes in (
        ("R50", (3, 4, 9), ("B/16", "L/16")),
        ("R50", (3, 4, 6, 3), ("B/32", "L/32")),
        ("R26", (2, 2, 2, 2), ("S/32", "B/32")),
    ):
        table |= {f"{stem}+{s}": table[s].replace(stem=units, patch_size=1) for s in sizes}
    # The authors' name; the stride is 4 * 8 = 32 pixels.
    table["R+Ti/16"] = table["Ti/16"].replace(stem=(), patch_size=8)
    # Beyer et al., 2022, "Better plain ViT baselines for ImageNet-1k".
    table["S/16-plain"] = table["S/16"].replace(
        pool="mean", position="sincos_2d", representation_size=384
    )
    # Dehghani et al., 2023: norms without centering and bias, projections without bias.
    table["22B/14"] = Variant(
        **_numbers("22B"),
        patch_size=14,
        pool="map",
        block="parallel",
        qkv_bias=False,
        norm="rms_norm",
        qk_norm="rms_norm",
    )
    for line in FAMILIES:
        for name, of_size in line.sizes.items():
            size, _, patch = name.partition("/")
            fields = {**_numbers(size), "patch_size": int(patch), **line.fields, **of_size}
            table[line.name.format(name)] = Variant(**fields)
    return table


def _numbers(size):
    """The fields of a row of `SIZES`; none for a size that its family describes by itself."""
    return dict(zip(("width", "depth", "num_heads", "mlp_dim"), SIZES.get(size, ())))


VARIANTS = _table()
"""The `Variant` of each published model, by its name, such as `"B/16"`."""


def get_variant(variant: str | Variant | None = None, **choices: Any) -> Variant:
    """The `Variant` that `variant` stands for, with `choices` changed in it.

    Args:
        variant: a `Variant`, a name of the table such as `"B/16"`, a size of the table with any
            other patch size such as `"B/24"`, or `None` for the defaults (ViT-B/16).
        choices: fields of `Variant` to change.

    Raises:
        ValueError: no such variant.
    """
    if variant is None:
        return Variant().replace(**choices)
    if isinstance(variant, Variant):
        return variant.replace(**choices)
    if str(variant) in VARIANTS:
        return VARIANTS[str(variant)].replace(**choices)
    size, _, patch = str(variant).partition("/")
    of_size = re.compile(re.escape(size) + r"/\d+")
    siblings = [v for name, v in VARIANTS.items() if of_size.fullmatch(name) and v.stem is None]
    if siblings and patch.isdecimal() and int(patch) > 0:
        return siblings[0].replace(**{"patch_size": int(patch), **choices})
    paper = [name for name in VARIANTS if "-" not in name]
    near = difflib.get_close_matches(str(variant), [n for n in VARIANTS if "-" in n], cutoff=0)
    raise ValueError(
        f"Unknown variant. Received: variant={variant!r}; expected one of {paper}, one of these "
        f"sizes with another patch size (such as 'B/24'), one of a later family (near: {near}; "
        "list(keras_vit.VARIANTS) has all), or a keras_vit.Variant."
    )


def size_of(name):
    """A size for messages: `"ViT-B"` of `"B/16"`, and `"DINOv2-S"` of `"DINOv2-S/14"`."""
    size = name.partition("/")[0]
    return size if "-" in size else f"ViT-{size}"
