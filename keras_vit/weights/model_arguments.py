"""The arguments of the model that a file is of: who names each, and whom a reader believes."""

import math

from keras_vit.checks import pair, positive_int
from keras_vit.variant import Variant
from keras_vit.variants import VARIANTS, size_of
from keras_vit.weights.safety import CheckpointError

# The sources, of which the first counts most.
ORDER = ("caller", "config", "catalogue", "arrays", "custom")
CALLER, CONFIG, CATALOGUE, ARRAYS, CUSTOM = ORDER
UNREPORTED = ""  # of a source that a load report does not name
# What a load report says of a source; nothing of the arrays, which are no assumption.
REPORTED = {
    CALLER: "{} as given",
    CONFIG: "its config.json",
    CATALOGUE: "the catalogue",
    ARRAYS: UNREPORTED,
    CUSTOM: "the family's, as no config.json says it",
}
# What arrays only suggest, and a config may say otherwise.
SUGGESTED = ("pool", "layer_scale", "block", "rotary")
POSITION = "patch_encoder/position/embedding"  # the canonical name of a table of positions
HEAD_WIDTH = 64  # of the attention heads in nearly every published model


class Arguments(dict):
    """Arguments of a model by their names, each from the source that counts most.

    The sources are, in this order: the caller, the config beside the file, the catalogue, the
    arrays, and the custom of the family. Readers `add` what a source says, in any order, and look
    values up as in a dict. A reader that knows better sets a value: `arguments["pool"] = "mean"`.

    Attributes:
        caller: arguments of a caller, or of the model that takes the weights. They are wishes for
            the model; a reader adds one as from `CALLER` where the file leaves it open.
        config: what the config of the model says, by the keys of its library; empty without one.
        assumed: argument -> what the load report says of its source.
        ignored: what a config says that no argument can, as texts for the load report.
    """

    def __init__(self, caller=()):
        self.caller, self.config = dict(caller), {}
        self.assumed, self.ignored, self._sources = {}, [], {}

    def add(self, source, why=None, **values):
        """Takes over what a source says, unless one before it in `ORDER` says it already.

        `why` is what the load report says instead of the usual, or `UNREPORTED`.
        """
        for field, value in values.items():
            if ORDER.index(source) <= ORDER.index(self.source_of(field)):
                self.override(source, why, **{field: value})

    def override(self, source, why=None, **values):
        """Takes over what a source says, whoever says otherwise."""
        for field, value in values.items():
            self[field], self._sources[field] = value, source
            if text := REPORTED[source].format(field) if why is None else why:
                self.assumed[field] = text
            else:
                self.assumed.pop(field, None)

    def source_of(self, field):
        """The source whose value of an argument counts; `CUSTOM` where nobody has named one."""
        return self._sources.get(field, CUSTOM)

    def from_config(self, field):
        """What the config says of an argument, or `None`."""
        return self[field] if self.source_of(field) == CONFIG else None

    def is_shown(self, field):
        """Whether the arrays show an argument, so that a config which contradicts it is wrong."""
        return self.source_of(field) == ARRAYS and field not in SUGGESTED

    def contradicts(self, field, stated):
        """Whether the arrays show another value than a config, where equal sides may be one."""
        shown = self.get(field)
        if isinstance(shown, tuple):
            stated, shown = stated if isinstance(stated, list) else [stated] * len(shown), [*shown]
        return self.is_shown(field) and stated != shown

    @property
    def learned_tokens(self):
        """The number of tokens before those of the patches, as `Variant.learned_tokens` counts."""
        return int(self["class_token"]) + int(self["distillation"]) + self["registers"]

    @property
    def shape(self):
        """A `Variant` with the patch size and the stem, which tell the grid of an image."""
        return Variant(patch_size=self["patch_size"], stem=self.get("stem"))

    def grid(self, image_size):
        """The (rows, columns) of the patches of an image; `None` where they do not tile it."""
        try:
            return self.shape.grid(image_size)
        except ValueError:
            return None


# ---- what is still open after a family has read a file


def infer_heads(arguments):
    """Sets `num_heads` where the arrays do not show it."""
    width, depth, caller = arguments["width"], arguments["depth"], arguments.caller
    # A model that waits for the file says nothing about a file of another width.
    given = caller.get("num_heads") if caller.get("width", width) == width else None
    if given is not None and arguments.source_of("num_heads") not in (ARRAYS, CONFIG):
        arguments.add(CALLER, num_heads=given)
    elif "num_heads" not in arguments:
        published = [
            (variant.num_heads, f"{size_of(name)} has as many")
            for name, variant in VARIANTS.items()
            if (variant.width, variant.depth) == (width, depth)
        ]
        if not published and width % HEAD_WIDTH:
            raise CheckpointError(
                f"The file does not say how many attention heads it has, and no custom fits its "
                f"width {width}. Say num_heads=..., or put its config.json beside it."
            )
        custom = (width // HEAD_WIDTH, f"heads of width {HEAD_WIDTH} are the custom")
        heads, why = (*published, custom)[0]
        arguments.add(CUSTOM, why, num_heads=heads)
    arguments["num_heads"] = positive_int(arguments["num_heads"], "num_heads")


def infer_gelu(arguments):
    """Moves an activation that is a GELU to the field `gelu`; the silu of a gate is its default."""
    activation, source = arguments.get("activation"), arguments.source_of("activation")
    if (arguments["mlp"], activation) == ("swiglu", "silu"):
        arguments.override(source, activation=None)
    elif arguments["mlp"] == "mlp" and str(activation).startswith("gelu_"):
        arguments.override(source, UNREPORTED, activation=None)
        arguments.override(source, gelu=activation.removeprefix("gelu_"))


def infer_position(arrays, arguments):
    """Sets `position`: without a table, positions may be none or computed, and numbers differ."""
    is_relative = relative_table(arrays) is not None
    if is_relative:
        at = "every_layer" if "position_0/table" in arrays else "shared"
        arguments.add(ARRAYS, position_at=at)
    if POSITION in arrays:
        arguments.override(ARRAYS, position="learned_1d")
    elif is_relative:
        arguments.override(ARRAYS, position="relative_2d")
    elif position := arguments.caller.get("position"):
        arguments.add(CALLER, position=position)
    elif arguments.get("position"):
        why = "the family's where a file has none"
        arguments.add(CUSTOM, why, position=arguments["position"])
    else:
        raise CheckpointError(
            "The file has no table of positions: its model has none, or computes them. Say "
            "position='none', or position='sincos_2d' for the fixed ones of big_vision."
        )


def infer_image_size(arrays, arguments):
    """Sets `image_size`, from the number of positions where there are any."""
    table = relative_table(arrays)
    if POSITION in arrays:
        patches = arrays[POSITION].shape[1] - arguments.learned_tokens
        size, source, why = find_image_size(patches, arguments)
    elif table is not None:
        offsets = len(table) - 3 * arguments["class_token"]
        size, source, why = find_image_size(offsets, arguments, of_offsets=True)
    elif arguments.caller.get("image_size") is not None:
        size, source, why = arguments.caller["image_size"], CALLER, UNREPORTED
    elif (size := arguments.from_config("image_size")) is not None:
        source, why = CONFIG, None
    else:
        stride = arguments.shape.stride
        size = tuple(max(round(224 / pixels), 1) * pixels for pixels in stride)
        source, why = CUSTOM, "the file has no positions: about 224 pixels, the custom"
    arguments.override(source, why, image_size=pair(size, "image_size"))


def relative_table(arrays):
    """The biases of `RelativePosition2D`, of the first block or of all, or `None`."""
    return arrays.get("position_0/table", arrays.get("position/table"))


def find_image_size(count, arguments, of_offsets=False):
    """The (height, width) of the image of a table of positions, its source and why it is that.

    The table has a row for each of `count` patches, or of the offsets between two. The caller's
    `file_image_size` and the config's size must fit; `image_size` helps where only it fits.
    """
    caller, shape = arguments.caller, arguments.shape
    stated = (
        (caller.get("file_image_size"), CALLER, UNREPORTED, "file_image_size"),
        (arguments.from_config("image_size"), CONFIG, None, "its config.json"),
    )
    rows = f"biases for {count} offsets of" if of_offsets else f"positions for {count}"
    what = f"The file has {rows} patches"
    side = math.isqrt(max(count, 0))
    side = (side + 1) // 2 if of_offsets else side

    def fits(grid):
        return grid and math.prod(2 * n - 1 if of_offsets else n for n in grid) == count

    for size, source, why, words in stated:
        if size is not None:
            size, grid = pair(size, "image_size"), arguments.grid(size)
            if not fits(grid):
                raise CheckpointError(
                    f"{what} of {shape.stride} pixels. Received: {words} says an image of {size}, "
                    f"which has a grid of {grid}."
                )
            return size, source, why
    square = (side, side) if side and fits((side, side)) else None
    in_pixels = tuple(side * stride for stride in shape.stride)
    asked = caller.get("image_size") and pair(caller["image_size"], "image_size")
    grid = asked and arguments.grid(asked)
    if fits(grid) and square in (None, grid):
        return asked, CALLER, None
    if fits(grid):
        raise CheckpointError(
            f"{what}: a grid of {square}, to be resized to your image_size, or one of {grid} "
            f"already? Say file_image_size={in_pixels} or {asked}."
        )
    if square is None:
        raise CheckpointError(
            f"{what}, which make no square. Its image was not square: say so with "
            "file_image_size=(height, width)."
        )
    return in_pixels, ARRAYS, "positions that make a square"
