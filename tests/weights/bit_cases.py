"""BiT checkpoints of four codebases, and ways to read and to change them."""

import dataclasses
import functools

import numpy as np
import pytest

import keras_vit
from keras_vit.weights.assign import assign, plan_load
from keras_vit.weights.files import Contents, open_checkpoint
from keras_vit.weights.formats import bit
from keras_vit.weights.load import read_contents
from tests.support import ORACLES, OracleCase, assert_same


@dataclasses.dataclass(frozen=True)
class Case(OracleCase):
    """A checkpoint: where it is, its constants, and layer -> feature in its io file."""

    version: str
    numerics: str
    blocks: tuple
    features: dict = dataclasses.field(hash=False)

    @property
    def checkpoint(self):
        file = self.folder / "checkpoint.npz"
        return file if file.is_file() else self.folder

    @functools.cached_property
    def contents(self):
        return open_checkpoint(self.checkpoint)

    def feature(self, name):
        x = self.io[name]
        return np.moveaxis(x, 1, -1) if "hidden" in name else x


def case(place, version, numerics, blocks, **features):
    return Case(ORACLES / place, version, numerics, blocks, features)


def big_vision(name, version, numerics, blocks, **features):
    named = {layer: f"feat_f64/{feature}" for layer, feature in features.items()}
    place = f"big_vision_bit/{name}"
    return case(place, version, numerics, blocks, root="feat_f64/stem", **named)


AUTHORS = {"root": "feat_f64/root", "pool": "feat_f64/pre_logits"}
AUTHORS |= {"stage_3_unit_1": "feat_f64/block3", "stage_4_unit_1": "feat_f64/block4"}
LATER = {"stage_2_unit_1": "stage2/unit01", "norm": "norm_pre_head", "pool": "pre_logits"}
TRANSFORMERS = {"root": "hidden_f64/0", "stage_2_unit_1": "hidden_f64/2"}
OFFICIAL = case("bit_official/r1111_w05", "v2", "bit", (1, 1, 1, 1), **AUTHORS)
PAPER = big_vision("bit_paper_d21_w05", "v2", "bit_paper", (2, 1), **LATER)
FIRST = "stage1/unit01"
ODD = big_vision("bit_paper_d11_w05_odd", "v2", "bit_paper", (1, 1), stage_1_unit_1=FIRST)
LAST = {"stage_2_unit_1": "stage2", "pool": "pre_logits"}
V1 = big_vision("bit_v1_d11_w05", "v1", "google", (1, 1), **LAST)
TIMM = case("bit_timm/resnetv2_bit_11_w05", "v2", "timm", (1, 1), pool="pre_logits_f64")
HUGGING = case("bit_hf/bit_preact", "v2", "timm", (1, 1), **TRANSFORMERS)
CASES = [OFFICIAL, PAPER, ODD, V1, TIMM, HUGGING]
every_case = pytest.mark.parametrize("case", CASES, ids=str)


def read(contents, hints=None):
    """The checkpoint of the one family that recognises the names."""
    (family,) = [family for family in bit.FAMILIES if family.recognises(contents.arrays)]
    checkpoint = read_contents(contents, hints or {})
    assert checkpoint.source.family == family.name
    return checkpoint


def load(contents, dtype="float32"):
    """A model with the weights, in which every array must have its place."""
    canonical = read(contents)
    model = keras_vit.BiT(**canonical.arguments, dtype=dtype)
    assign(model, plan_load(model, canonical))
    return model


def changed(case, rename=str, config=None, **arrays):
    """The checkpoint with other names, other arrays (`None` for none), another config."""
    found = {rename(name): array for name, array in case.contents.arrays.items()} | arrays
    found = {name: array for name, array in found.items() if array is not None}
    return Contents(case.folder, found, {**case.contents.config, **(config or {})})


def same_arrays(a, b):
    assert_same(a.weights.arrays, b.weights.arrays)
