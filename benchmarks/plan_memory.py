"""Memory of one update on one chip, computed from shapes.

A training step holds the state (variables, the optimizer's, averages) all the time, and beside it
what the backward pass still needs, the gradients that it has made already, and what the block at
hand computes with. The last three are followed block by block; their sum is greatest somewhere.

What a block keeps for the backward pass is the list of Korthikanti et al., 2022 ("Reducing
activation recomputation in large transformer models"), section 4.1, without dropout: the inputs of
every product, LayerNorm, GELU and attention, once each.
"""

import dataclasses
import math

from plan_shapes import BYTES

FLOAT = 4
ATTENTION = ("stored", "fused")


@dataclasses.dataclass(frozen=True)
class Placing:
    """How a step lies on the chips.

    Attributes:
        mode: one of `plan_shapes.LAYOUTS`.
        devices: all chips.
        model_devices: those that share a model; 1 but for `"model_parallel"`.
        precision: `"float32"` or `"mixed_bfloat16"`.
        remat: whether blocks are computed again in the backward pass.
        attention: `"stored"`: the softmax is kept, tokens x tokens for each head; `"fused"`: a
            kernel such as FlashAttention computes it again.
        backend: `"torch"` for what is PyTorch's own on a GPU: the inputs of LayerNorm are kept in
            float32, padding makes a copy of a map, clipping makes a second list of gradients,
            DistributedDataParallel has a copy of them in its buckets; `"torch-cpu"` for the first
            two of these alone.
    """

    mode: str
    devices: int
    model_devices: int = 1
    precision: str = "float32"
    remat: bool = False
    attention: str = "stored"
    backend: str = "jax"

    @property
    def groups(self):
        """Parts that a batch is cut into."""
        return self.devices // self.model_devices

    @property
    def cut(self):
        """The devices that the layout cuts a variable for."""
        return self.devices if self.mode == "fully_sharded" else self.model_devices

    @property
    def width(self):
        """Bytes of a computed value."""
        return BYTES[self.precision]


def block_bytes(shapes, placing):
    """(kept, working) bytes of one block for one image: until its backward pass, and during it."""
    v, t, c, m = shapes.variant, shapes.tokens, placing.width, placing.model_devices
    d, hidden, heads = v.width, v.mlp_dim, v.num_heads
    softmax = heads * t * FLOAT + (heads * t * t * c if placing.attention == "stored" else 0)
    normed = FLOAT if placing.backend.startswith("torch") else c
    # Into the norms, out of them; mean and deviation.
    whole = 2 * t * d * normed + 2 * t * d * c + 4 * t * FLOAT
    parted = (4 * t * d + 2 * t * hidden) * c + softmax  # q, k, v, their result; around GELU
    scores = 2 * heads * t * t * FLOAT if placing.attention == "stored" else 0
    working = t * d * c + max(2 * t * hidden * c, 4 * t * d * c + scores) // m
    return whole + parted // m, working


def outside_bytes(shapes, placing):
    """Bytes that one image keeps before the first block, and after the last."""
    v, c = shapes.variant, placing.width
    height, width = shapes.image_size
    pads = placing.backend.startswith("torch")
    maps = stem_maps(v, shapes.image_size, c, pads) if v.stem is not None else 0
    channels = _patch_values(shapes) // math.prod(v.patch_size)
    image = height * width * (3 if v.stem is not None else channels) * FLOAT
    before = image + math.prod(shapes.grid) * _patch_values(shapes) * c + maps
    tokens = 1 if v.pool == "token" or v.norm_after_pool else shapes.tokens
    copied = pads and c < FLOAT  # into the last norm, in float32
    # The token that is read is a view of all of them where views are (PyTorch).
    after = shapes.tokens * v.width * c if tokens == 1 and not copied else 0
    normed = 1 if v.pool == "mean" else tokens  # the gradient of a mean needs none of them
    # In and out of the last norm.
    after += tokens * v.width * (FLOAT if copied else c) + normed * v.width * c
    after += tokens * 2 * FLOAT
    if v.pool == "map":
        after += 2 * tokens * v.width * c + (2 * v.mlp_dim + 6 * v.width) * c
    after += 2 * (v.representation_size or 0) * c + 3 * shapes.num_classes * FLOAT
    return before, after


def _patch_values(shapes):
    """Values of one patch: the rows of the kernel that projects it."""
    return next(v.shape[0] for v in shapes.variables if v.path == "patch_encoder/projection/kernel")


def stem_maps(variant, image_size, width, pads):
    """Bytes of the feature maps that a ResNet stem keeps for one image: what its convolutions and
    its group norms take in, each once.

    Args:
        width: bytes of a value.
        pads: whether what is padded to be halved is a copy, and pooling keeps its choice (PyTorch).
    """
    filters = int(64 * variant.stem_width)
    padded = math.prod(side + 5 for side in image_size) * 3 if pads else 0
    sides = [-(-side // 2) for side in image_size]
    kept = 2 * math.prod(sides) * filters  # of the root: before and after norm and ReLU
    padded += math.prod(side + 1 for side in sides) * filters if pads else 0
    sides = [-(-side // 2) for side in sides]
    chosen = 8 * math.prod(sides) * filters if pads else 0  # where each maximum was, in int64
    kept += math.prod(sides) * filters  # after pooling
    for stage, units in enumerate(variant.stem):
        inner = filters * 2**stage
        for unit in range(units):
            before = math.prod(sides)
            if stage and not unit:
                padded += math.prod(side + 1 for side in sides) * inner if pads else 0
                sides = [-(-side // 2) for side in sides]
            after = math.prod(sides)
            ends = 3 if not unit else 2  # its last norm's input, its output, the projection
            kept += 2 * before * inner + 2 * after * inner + ends * 4 * after * inner
    return (kept + padded) * width + chosen


def state(shapes, placing):
    """What lies on a chip all the time: dict of bytes."""
    one = lambda of: shapes.bytes(of, placing.mode, placing.cut)  # noqa: E731
    return {"parameters": one("bytes"), "optimizer": one("slots"), "average": one("average")}


def step(shapes, placing, images):
    """What an update holds beside the state: dict of bytes, `"peak"` that of its fullest moment.

    `"activations"` and `"gradients"` are all of them; they are less together at any moment, as the
    former go while the latter come.

    Args:
        shapes: `Shapes`.
        placing: `Placing`.
        images: that a group of `model_devices` chips computes together.
    """
    depth = shapes.variant.depth
    kept, working = (images * value for value in block_bytes(shapes, placing))
    before, after = (images * value for value in outside_bytes(shapes, placing))
    entry = images * shapes.tokens * shapes.variant.width * placing.width
    each = entry if placing.remat else kept
    of_blocks = [_gradients(shapes, placing, f"block_{i}/") for i in range(depth)]
    made = _gradients(shapes, placing, "") - sum(of_blocks)  # all others, to be on the safe side
    whole = _whole_block(shapes, placing)
    again = kept - entry if placing.remat else 0
    if placing.remat and placing.backend == "jax":
        working = 0  # gradients take the place of what was computed again for them
    activations = before + after + each * depth + again
    casts = shapes.bytes("cast", placing.mode, placing.cut) if placing.width == 2 else 0
    in_all = made + sum(of_blocks)
    is_torch = placing.backend == "torch"
    buckets = in_all if is_torch and placing.mode == "data_parallel" and placing.groups > 1 else 0
    found = {
        "activations": activations,
        "gradients": in_all + buckets,
        "casts": casts if placing.mode != "fully_sharded" else 0,
        "working": working + whole,
    }
    peak = 2 * in_all if is_torch else 0
    for i in reversed(range(depth)):
        made += of_blocks[i]
        peak = max(peak, activations - each * (depth - 1 - i) + made)
    peak += buckets
    return {**found, "peak": peak + found["casts"] + found["working"]}


def kept_after_forward(shapes, placing, images):
    """Bytes that wait for the backward pass when it begins: the activations, the copies in
    bfloat16; with rematerialisation the inputs of the blocks alone."""
    found = step(shapes, placing, images)
    if not placing.remat:
        return found["activations"] + found["casts"]
    entry = shapes.tokens * shapes.variant.width * placing.width
    kept, _ = block_bytes(shapes, placing)
    return found["activations"] - images * (kept - entry)


def _gradients(shapes, placing, prefix):
    return shapes.bytes("bytes", placing.mode, placing.cut, lambda path: path.startswith(prefix))


def _whole_block(shapes, placing):
    """What a fully sharded step gathers and sums at a time: two blocks' variables, one's gradient.

    One block is computed with while the next one arrives.
    """
    if placing.mode != "fully_sharded":
        return 0
    of = lambda what: shapes.bytes(what, where=lambda path: path.startswith("block_0/"))  # noqa: E731
    return 2 * of("cast" if placing.width == 2 else "bytes") + of("bytes")


def total(shapes, placing, images):
    """All bytes of an update on one chip at its fullest moment."""
    return sum(state(shapes, placing).values()) + step(shapes, placing, images)["peak"]


def largest_batch(shapes, placing, memory):
    """The most images for a group of `model_devices` chips that fit in `memory` bytes, or 0."""
    fits = lambda images: total(shapes, placing, images) <= memory  # noqa: E731
    if not fits(1):
        return 0
    most = 1
    while fits(2 * most):
        most *= 2
    low, high = most, 2 * most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
