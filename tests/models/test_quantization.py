"""Which kernels of which model Keras's `quantize` makes smaller, and what then is refused."""

import pytest

import keras_vit
from keras_vit import inspection
from tests.arrays import assert_close, dtype_of, images, largest, to_numpy
from tests.support import forward, randomize, refuses, slow_unless_torch, tiny_bit, tiny_vit

pytestmark = pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")

LATER = {"mlp": "swiglu", "rotary": "mixed", "mlp_norm": "layer_norm", "distillation": True}
HYBRID = {"stem": (1,), "stem_width": 0.5, "patch_size": 2}
# What is built, and how many kernels stay as they are: those of convolutions.
KINDS = {
    "token": (tiny_vit, {}, 0),
    "mean": (tiny_vit, {"pool": "mean", "variable_size": True}, 0),
    "map": (tiny_vit, {"pool": "map", "representation_size": 6}, 0),
    "every token": (tiny_vit, {"pool": None, "position": "relative", "position_at": "shared"}, 0),
    "later": (tiny_vit, LATER, 0),
    "parallel": (tiny_vit, {"block": "parallel", "projection": 4, "biases": "none"}, 0),
    "hybrid": (tiny_vit, HYBRID, 5),
    "BiT": (tiny_bit, {}, 9),
    "bfloat16": (tiny_vit, {"dtype": "mixed_bfloat16"}, 0),
}


def kernels(model):
    return [v for v in model.weights if v.name == "kernel"]


@pytest.mark.slow
@pytest.mark.parametrize("mode, tolerance", [("int8", 0.05), ("int4", 0.3), ("float8", 0.2)])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_quantised(reopened, kind, mode, tolerance):
    make, options, convolutions = KINDS[kind]
    model = randomize(make(**options), seed=1)
    exact, every = to_numpy(forward(model, images())), len(kernels(model))
    model.quantize(mode)
    small = [v for v in kernels(model) if dtype_of(v) == "int8"]
    products = [x for x in model._flatten_layers() if x.quantization_mode == mode]
    products = [x for x in products if any(v.name == "kernel_scale" for v in x.variables)]
    assert len(products) == every - convolutions
    assert len(small) == (0 if mode == "float8" else every - convolutions)
    error = largest(to_numpy(forward(model, images())) - exact)
    assert 0 < error < tolerance * largest(exact)
    assert_close(forward(reopened(model), images()), forward(model, images()), 0)


@slow_unless_torch
def test_what_needs_exact_kernels_is_refused(tmp_path):
    """Their integers without the scale would be wrong in silence."""
    model = randomize(tiny_vit(depth=1, variable_size=True))
    with model.cut_into(4):
        exact = to_numpy(model(images()))
    model.quantize("int8", filters="projection")
    with model.cut_into(4):  # which resizes the patches, and leaves the kernels as they are
        error = largest(to_numpy(model(images())) - exact)
    assert 0 < error < 0.05 * largest(exact)
    refuses(r"quantised to int8.*before `quantize`", inspection.filter_components, model, 2)
    refuses(r"quantised to int8.*before `quantize`", keras_vit.resize, model, patch_size=4)
    assert keras_vit.resize(model, image_size=32, patch_size=8).image_size == (32, 32)
    for path in ("model.npz", "model.safetensors", "folder"):
        words = r"no place for: quantised layers.*model\.save"
        refuses(words, keras_vit.save_weights, model, tmp_path / path)
    assert list(tmp_path.iterdir()) == []
