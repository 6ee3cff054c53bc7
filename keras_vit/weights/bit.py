"""BiT checkpoints of Google: of big_transfer, and of big_vision's two ResNets.

In google-research/big_transfer, the published BiT-*.npz, a counter may follow `standardized_conv2d`
and `group_norm`, and the head is a 1 x 1 convolution. In google-research/big_vision `bit_paper.py`
is the published, pre-activation BiT, and `bit.py` a post-activation one, whose units are called as
in the stems of hybrids; they are read, not written.
"""

import re

from keras_vit.checks import pair
from keras_vit.preprocessing import BIG_VISION, BIT
from keras_vit.weights.canonical import CONFIG, ROOT, Canonical, check_bias, root_width, units_of
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.tables import (
    SAME,
    VECTOR,
    Layout,
    Table,
    flax_dense,
    flax_norm,
    simplified,
)

OURS = "stage_{s}_unit_{u}/"
HEAD = "head/kernel"


def only(kernel, matrix):
    """The matrix of a 1 x 1 convolution (height, width, in, out)."""
    if kernel.ndim != 4 or kernel.shape[:2] != (1, 1):
        raise ValueError("it must be a 1 x 1 convolution")
    return matrix


class BiTFormat:
    """What the formats share: how a file of names from `TABLE` becomes a `Canonical` and back.

    A subclass has `FAMILY`; `SIGN`, the pattern of a name that only it has; `TABLE`; and
    `STRIPPED`, the pattern of what is left out of names.
    """

    STRIPPED = r"(?!)"

    @classmethod
    def recognises(cls, arrays):
        """Whether these are the names of this family."""
        return any(re.match(cls.SIGN, name) for name in arrays)

    @classmethod
    def canonical(cls, arrays, numerics, hints, configured_size=None, **facts):
        """The `Canonical` of a file.

        Args:
            arrays: dict from name to array.
            numerics: function from `"v1"` or `"v2"` to the constants of the family, a name of
                `keras_vit.layers.resnet.NUMERICS`.
            hints: arguments of the caller.
            configured_size: image size that a config beside the file states, or `None`.
            facts: other fields of `Canonical`.
        """
        tower, names = simplified(arrays, cls.STRIPPED)
        arrays, origin, _ = cls.TABLE.read(tower, cls.FAMILY)
        blocks = units_of(arrays, f"BiT of {cls.FAMILY}")
        if ROOT not in arrays or not blocks:
            raise CheckpointError(
                f"This is no whole BiT of {cls.FAMILY}. Received: {len(arrays)} arrays with the "
                f"units {blocks}; expected {ROOT!r} and units as well (canonical names)."
            )
        if HEAD in arrays:
            check_bias("head", arrays[HEAD], arrays.get("head/bias"))
        if hints.get("image_size") is not None:
            size, source = hints["image_size"], None
        elif configured_size is not None:
            size, source = configured_size, CONFIG
        else:
            size, source = 224, "the custom; a ResNet takes any size"
        version = "v1" if "root/norm/gamma" in arrays else "v2"
        architecture = {
            "blocks": blocks,
            "width": root_width(arrays),
            "version": version,
            "numerics": numerics(version),
            "num_classes": arrays[HEAD].shape[-1] if HEAD in arrays else 0,
            "channels": arrays[ROOT].shape[2],
            "image_size": pair(size, "image_size"),
        }
        return Canonical(
            cls.FAMILY,
            arrays,
            {name: names[where] for name, where in origin.items()},
            architecture,
            {"image_size": source} if source else {},
            model="BiT",
            **{"preprocessing": BIT, **facts},
        )

    @classmethod
    def write(cls, model, arrays):
        """The arrays of a file from canonical ones."""
        return cls.TABLE.write(arrays, model.variant)

    @staticmethod
    def impossible(model):
        """What of a model the format has no place for, as texts."""
        return []

    @staticmethod
    def obstacles(v):
        """What of a variant the other library computes otherwise, as texts."""
        # timm's 1e-8 in place of the authors' 1e-10 beside the variance of a kernel is none: timm
        # reads the published files so.
        return [] if v.numerics in ("bit", "timm") else [f"numerics={v.numerics!r}"]


def _big_transfer_unit(unit):
    """Rows of a unit of big_transfer, whose three parts are called a, b and c."""
    rows = [(unit + "a/proj/standardized_conv2d/kernel", OURS + "conv_proj/kernel", SAME)]
    for n, letter in enumerate("abc", start=1):
        norm = f"{unit}{letter}/group_norm/"
        rows += [
            (f"{unit}{letter}/standardized_conv2d/kernel", f"{OURS}conv{n}/kernel", SAME),
            (norm + "gamma", f"{OURS}norm{n}/gamma", VECTOR),
            (norm + "beta", f"{OURS}norm{n}/beta", VECTOR),
        ]
    return rows


class BigTransfer(BiTFormat):
    """npz files of google-research/big_transfer."""

    FAMILY = "google-research/big_transfer"
    SIGN = r"resnet/(root_block|block\d+)/"
    STRIPPED = r"(?<=standardized_conv2d)_\d+|(?<=group_norm)_\d+"
    TABLE = Table(
        ("resnet/root_block/standardized_conv2d/kernel", ROOT, SAME),
        *_big_transfer_unit("resnet/block{s}/unit{u:02}/"),
        ("resnet/group_norm/gamma", "norm/gamma", VECTOR),
        ("resnet/group_norm/beta", "norm/beta", VECTOR),
        (
            "resnet/head/conv2d/kernel",
            HEAD,
            Layout(4, lambda k: only(k, k[0, 0]), lambda k, v: k[None, None]),
        ),
        ("resnet/head/conv2d/bias", "head/bias", SAME),
    )

    @classmethod
    def read(cls, contents, hints):
        """The `Canonical` of a file; arguments and errors as in `google.read`, here and below."""
        return cls.canonical(contents.arrays, lambda version: "bit", hints)

    @staticmethod
    def impossible(model):
        return ["version='v1'"] if model.variant.version != "v2" else []

    @staticmethod
    def obstacles(v):
        return [f"numerics={v.numerics!r}"] if v.numerics != "bit" else []


class BigVision(BiTFormat):
    """npz files of google-research/big_vision."""

    FAMILY = "google-research/big_vision (BiT)"
    STRIPPED = r"^(params|opt/target)/"
    UNIT = "block{s}/unit{u}/"
    TABLE = Table(
        ("[root_block/|]conv_root/kernel", ROOT, SAME),
        (UNIT + "conv{n}/kernel", OURS + "conv{n}/kernel", SAME),
        (UNIT + "conv_proj/kernel", OURS + "conv_proj/kernel", SAME),
        *flax_norm("gn_root", "root/norm", VECTOR),
        *flax_norm(UNIT + "gn{n}", OURS + "norm{n}", VECTOR),
        *flax_norm(UNIT + "gn_proj", OURS + "norm_proj", VECTOR),
        *flax_norm("norm-pre-head", "norm", VECTOR),
        *flax_dense("head", "head"),
    )

    @classmethod
    def recognises(cls, arrays):
        """Whether these are the names of this family, rather than those of a hybrid."""
        names = [re.sub(cls.STRIPPED, "", name) for name in arrays]
        stem = any(re.match(r"(root_block/)?conv_root/|block\d+/unit\d+/", name) for name in names)
        return stem and not any(re.match(r"embedding/|Transformer/|cls$", name) for name in names)

    @classmethod
    def read(cls, contents, hints):
        arrays = contents.arrays
        prefix = next((f"{m[0]}" for n in arrays if (m := re.match(cls.STRIPPED, n))), "")
        ignored = tuple(name for name in arrays if not name.startswith(prefix))
        canonical = cls.canonical(
            {name: arrays[name] for name in arrays if name.startswith(prefix)},
            {"v1": "google", "v2": "bit_paper"}.get,
            hints,
            ignored=ignored,
        )
        if canonical.architecture["version"] == "v1":
            canonical.preprocessing = BIG_VISION
        return canonical
