"""BiT checkpoints of four families, and ways to read and to damage them."""

import dataclasses
import functools

import numpy as np

from keras_vit.models import BiT
from keras_vit.weights import bit
from keras_vit.weights.assign import assign
from keras_vit.weights.canonical import check_architecture
from keras_vit.weights.files import Contents, open_checkpoint
from tests.support import ORACLES, read_arrays


@dataclasses.dataclass(frozen=True)
class Case:
    """A checkpoint: where it is, its constants, and layer -> feature in its io file."""

    path: str
    version: str
    numerics: str
    blocks: tuple
    features: tuple
    channels_first: bool = False

    def __str__(self):
        return self.path

    @property
    def folder(self):
        return ORACLES / self.path

    @functools.cached_property
    def contents(self):
        return open_checkpoint(self.folder / "checkpoint.npz" if self.is_npz else self.folder)

    @property
    def is_npz(self):
        return (self.folder / "checkpoint.npz").is_file()

    @functools.cached_property
    def io(self):
        return read_arrays(self.folder / "io.npz")

    def feature(self, name):
        x = self.io[name]
        return np.moveaxis(x, 1, -1) if self.channels_first else x


STAGE_2 = "stage_2_unit_1"
CASES = [
    Case(
        "bit_official/r1111_w05",
        "v2",
        "bit",
        (1, 1, 1, 1),
        (
            ("root", "feat_f64/root"),
            ("stage_3_unit_1", "feat_f64/block3"),
            ("stage_4_unit_1", "feat_f64/block4"),
            ("pool", "feat_f64/pre_logits"),
        ),
    ),
    Case(
        "big_vision_bit/bit_paper_d21_w05",
        "v2",
        "bit_paper",
        (2, 1),
        (
            ("root", "feat_f64/stem"),
            (STAGE_2, "feat_f64/stage2/unit01"),
            ("norm", "feat_f64/norm_pre_head"),
            ("pool", "feat_f64/pre_logits"),
        ),
    ),
    Case(
        "big_vision_bit/bit_paper_d11_w05_odd",
        "v2",
        "bit_paper",
        (1, 1),
        (
            ("root", "feat_f64/stem"),
            ("stage_1_unit_1", "feat_f64/stage1/unit01"),
            ("pool", "feat_f64/pre_logits"),
        ),
    ),
    Case(
        "big_vision_bit/bit_v1_d11_w05",
        "v1",
        "google",
        (1, 1),
        (
            ("root", "feat_f64/stem"),
            (STAGE_2, "feat_f64/stage2"),
            ("pool", "feat_f64/pre_logits"),
        ),
    ),
    Case(
        "bit_timm/resnetv2_bit_11_w05",
        "v2",
        "timm",
        (1, 1),
        (("pool", "pre_logits_f64"),),
    ),
    Case(
        "bit_hf/bit_preact",
        "v2",
        "timm",
        (1, 1),
        (("root", "hidden_f64/0"), (STAGE_2, "hidden_f64/2")),
        channels_first=True,
    ),
]
OFFICIAL, PAPER, ODD, V1, TIMM, HUGGING = CASES


def read(contents, hints=None):
    """What the one family that recognises the names reads."""
    (family,) = [family for family in bit.FAMILIES if family.recognises(contents.arrays)]
    return family.read(contents, hints or {})


def load(contents):
    """A model with the weights, in which every array must have its place."""
    canonical = read(contents)
    check_architecture(canonical)
    model = BiT(**canonical.architecture)
    assign(model, canonical)
    return model


def renamed(case, function, **changes):
    arrays = {function(name): array for name, array in case.contents.arrays.items()}
    return Contents(case.folder, arrays, {**case.contents.config, **changes})


def same_arrays(a, b):
    assert set(a.arrays) == set(b.arrays)
    for name, array in a.arrays.items():
        np.testing.assert_array_equal(array, b.arrays[name])
