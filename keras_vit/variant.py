"""The architecture of one Vision Transformer as data: a dataclass.

A `Variant` holds every choice that decides which weights a model has and which function they
compute. What decides only how a model is used or trained (image size, number of classes,
dropout) is an argument of `keras_vit.VisionTransformer` instead. `keras_vit.variants` has the
published ones.
"""

import dataclasses

from keras_vit import checks
from keras_vit.checks import choice, grid_of, pair, positive_int
from keras_vit.extensions import Extensions, check_exclusions

POOLS = ("token", "mean", "token_mean", "map", "probe", "first", None)
POSITIONS = ("learned_1d", "learned_2d", "sincos_2d", "relative", "relative_2d", "none")
PLACES = ("input", "every_layer", "shared")
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

    The fields of `Extensions`, which later families added, are given by keyword too.

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
        stem: units of each stage of a ResNet in front of the patches, such as (3, 4, 9), in a
            hybrid (section 3.1); `()` for the root of a ResNet alone, `None` for no stem.
        stem_width: factor of the channels of the stem.
        stem_numerics: the constants of the stem, a name of `keras_vit.layers.resnet.NUMERICS`.
        stem_folded: whether the kernels of the stem are standardised already (`keras_vit.fold`).
        interpolation: how position embeddings are resampled for images of another size:
            `"align_corners"`, the authors' rule, or another of `keras_vit.layers.resize_matrix`.
        registers: number of register tokens between class token and patches (Darcet et al., 2024).
        norm_after_pool: with `pool="mean"`, whether the mean is normalised instead of each token
            (timm's `fc_norm`).
        gelu: `"tanh"`, the approximation that the authors' code uses, or `"erf"`, the exact form.
        qkv_bias: whether the query, key and value projections have a bias.
        epsilon: added to the variance in every LayerNorm.
    """

    # Marks of fields:
    # - `choice`: the checkpoint decides; `from_checkpoint("CLIP...")` brings its gelu and epsilon.
    # - `compared`: weights of another value fit too, so that a report names what differs.
    # - `follows`: its default depends on another field, so that `replace(pool="mean")` also resets
    #   `class_token`.

    # Table 1
    width: int = 768
    depth: int = 12
    num_heads: int = 12
    mlp_dim: int | None = dataclasses.field(default=None, metadata={"follows": "width"})
    patch_size: int | tuple[int, int] = 16
    # Eq. 1 and 4, Table 8
    pool: str | None = choice("token", POOLS, compared=True)
    class_token: bool | None = choice(None, follows="pool")
    representation_size: int | None = None
    position: str | None = choice("learned_1d", POSITIONS, compared=True)
    position_at: str | None = choice(None, PLACES, follows="position")
    # Hybrids, section 3.1
    stem: tuple[int, ...] | None = None
    stem_width: float = 1.0
    stem_numerics: str = choice("google", ("google", "timm"), compared=True)
    stem_folded: bool = False
    # Small changes of later code
    interpolation: str = choice("align_corners", INTERPOLATIONS)
    registers: int = choice(0)
    norm_after_pool: bool = choice(False, compared=True)
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
        object.__setattr__(self, name, value)  # the dataclass is frozen

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
        """Whether a field asks for a part that `Network` lacks and `ExtendedNetwork` has."""
        return (
            self.pool not in ("token", "mean", "first")
            or self.position_at != "input"
            or self.registers > 0
            or self.norm_after_pool
            or self.extensions != Extensions()
        )

    @property
    def learned_tokens(self):
        """The number of class, distillation and register tokens."""
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
        """A copy with the named fields changed; fields that follow them get their defaults.

        So a model of another width has an MLP of 4 times this width, unless `mlp_dim` is given too.
        """
        checks.check_names(self, choices)
        fields = dataclasses.fields(self)
        followers = [field for field in fields if field.metadata.get("follows") in choices]
        defaults = {field.name: field.default for field in followers}
        return dataclasses.replace(self, **(defaults | choices))
