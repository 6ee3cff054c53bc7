"""The faults of others: each is still there, or what works round it may go."""

import random
import sys

import keras
import numpy as np
import pytest
from PIL import Image

from keras_vit import workarounds
from tests.support import (
    BACKEND,
    images,
    randomize,
    refuses,
    run_in_fresh_process,
    slow_unless_torch,
    tiny_vit,
)

NO_TENSORFLOW = pytest.mark.skipif(BACKEND == "tensorflow", reason="has TensorFlow anyway")


def test_a_seed_repeats_what_python_and_numpy_draw():
    drawn = []
    for _ in range(2):
        workarounds.set_random_seed(3)
        drawn.append((random.random(), np.random.normal()))
    assert drawn[0] == drawn[1]


@slow_unless_torch
def test_augmix_still_draws_from_python():
    images = np.random.default_rng(0).uniform(0, 255, (1, 8, 8, 3)).astype("float32")

    def drawn(seed):
        with workarounds.python_random(seed):
            return np.asarray(keras.layers.AugMix(seed=1)(images))

    state = random.getstate()
    first, again = drawn(0), drawn(0)
    assert random.getstate() == state
    np.testing.assert_array_equal(first, again)
    others = [drawn(seed) for seed in range(1, 5)]
    told = "keras_vit.workarounds.python_random may go"
    assert any(np.abs(other - first).max() > 0 for other in others), told


@pytest.mark.skipif(BACKEND != "jax", reason="JAX shares programs between equal functions")
def test_a_train_function_that_is_made_anew_is_still_one_that_is_kept():
    model = randomize(tiny_vit(depth=1, variable_size=True))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.0), loss)
    batch = images((2, 16, 16, model.channels)), np.zeros(2)
    before, programs = model.train_on_batch(*batch), [model.train_function]
    with model.cut_into(4):
        model.make_train_function(force=True)
        told = "keras_vit.workarounds.new_train_function may go"
        assert model.train_on_batch(*batch) == before, told
        programs.append(workarounds.new_train_function(model))
        assert model.train_on_batch(*batch) != before


@pytest.mark.slow
@NO_TENSORFLOW
def test_keras_still_imports_tensorflow_for_a_seed():
    pytest.importorskip("tensorflow")
    run_in_fresh_process("""
import sys
import keras
from keras_vit.workarounds import set_random_seed
set_random_seed(0)
assert "tensorflow" not in sys.modules
keras.utils.set_random_seed(0)
assert "tensorflow" in sys.modules, "keras_vit.workarounds.set_random_seed may go"
""")


@pytest.mark.any_backend
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of the GNU C library")
def test_memory_is_kept():
    """A block of 64 MiB that is freed stays in the process, which by itself gives it back."""
    run_in_fresh_process("""
import tests.bare
import ctypes, pathlib
from keras_vit.workarounds import keep_memory

def resident():
    pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096

def after_a_block():
    before, libc = resident(), ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    block = libc.malloc(2**26)
    ctypes.memset(block, 1, 2**26)
    libc.free(block)
    return resident() - before

assert after_a_block() < 2**24
assert keep_memory()
assert after_a_block() > 2**25
""")


def test_a_model_lives_on_after_a_batch_that_it_cannot_take():
    """In `predict`, `fit` and on a batch alone, at once or after others, with the last values."""
    model = tiny_vit()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = images((4, 16, 16, 3)), np.zeros(4)
    before = model.get_weights()

    def batches():
        yield x, y
        yield x[:, :8], y

    for call in (model.predict, model.predict_on_batch, lambda bad: model.fit(bad, y, verbose=0)):
        refuses("takes images of shape", call, x[:, :8], error=Exception)
        assert all((a == b).all() for a, b in zip(model.get_weights(), before))
    refuses(r"takes images of shape|\[4,8,16,3\]", model.fit, batches(), verbose=0, error=Exception)
    if BACKEND != "tensorflow":  # whose graph counts the update beside the error
        assert int(model.optimizer.iterations) == 1
    model.fit(x, y, verbose=0)
    assert np.isfinite(model.predict(x, verbose=0)).all()


@pytest.mark.skipif(BACKEND != "jax", reason="a fault of Keras on JAX")
def test_keras_still_loses_the_values_of_a_model():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError):
        model.predict(np.zeros((1, 4)), verbose=0)
    with pytest.raises(TypeError):  # else workarounds.keep_values_after_errors may go
        model.get_weights()


def test_keras_still_takes_a_layer_that_a_map_quantises_for_one_that_is_not():
    int8 = keras.dtype_policies.get("int8_from_float32")
    policies = keras.dtype_policies.DTypePolicyMap("float32", {"dense": int8})
    dense = keras.layers.EinsumDense("bd,dk->bk", 2, dtype=policies, name="dense")
    dense.build((None, 3))
    store = {}
    dense.save_own_variables(store)
    # Else the `dtype_policy` of `Linear` may go.
    assert any(value is None for value in store.values())


@pytest.mark.any_backend
def test_keras_still_cannot_compare_a_map_of_policies_and_takes_the_names_from_one():
    one, other = (keras.dtype_policies.DTypePolicyMap("float32") for _ in range(2))
    with pytest.raises(AttributeError):  # else `changed_layers` may compare without `policy_at`
        _ = one == other
    int8 = keras.dtype_policies.get("int8_from_float32")
    keras.dtype_policies.DTypePolicyMap(None, {"dense": int8}).get_config()
    assert int8.name is None  # else `own_policy` need not name the default


def test_grain_still_waits_for_workers_that_ended_without_an_error():
    run_in_fresh_process("""
import types
from grain._src.python.dataset.transformations import process_prefetch
ended = types.SimpleNamespace(_prefetch_process=types.SimpleNamespace(exitcode=0))
failed = process_prefetch.ProcessPrefetchDatasetIterator._process_failed(ended)
assert not failed, "keras_vit.workarounds.report_ended_workers may go"
""")


@pytest.mark.any_backend
def test_pillow_still_confuses_a_tiff_on_its_side(tmp_path):
    exif, pixels = Image.Exif(), np.random.default_rng(0).integers(0, 256, (5, 9), "uint8")
    exif[0x0112] = 6  # shown after a quarter turn clockwise
    Image.fromarray(pixels).save(tmp_path / "a.tiff", exif=exif)
    with Image.open(tmp_path / "a.tiff") as image, Image.open(tmp_path / "a.tiff") as other:
        workarounds.decode(image)
        assert image.filename == str(tmp_path / "a.tiff")
        np.testing.assert_array_equal(image, np.rot90(pixels, -1))
        assert not np.array_equal(image, other), "keras_vit.workarounds.decode may go"
