"""Initial values: Keras's distributions; on JAX by few programs, whatever the layout."""

import keras
import numpy as np
import pytest
from keras import initializers

from keras_vit.layers.kernels import initial
from tests.support import BACKEND, run_in_fresh_process, tiny_vit, to_numpy

of_jax = pytest.mark.skipif(BACKEND != "jax", reason="other backends draw as Keras does")
SHAPES = [(3, 3, 64, 50), (20_000,)]
KINDS = {
    "glorot_uniform": initializers.GlorotUniform(seed=1),
    "lecun_normal": initializers.LecunNormal(seed=2),
    "he_normal": initializers.HeNormal(seed=3),
    "untruncated": initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal", seed=4),
    "axes": initializers.VarianceScaling(2.0, input_axes=[0], output_axes=[-1], seed=5),
    "normal": initializers.RandomNormal(1.0, 0.02, seed=6),
}


@of_jax
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_the_distribution_is_that_of_keras(kind, shape):
    keras_values = to_numpy(KINDS[kind](shape))
    values = to_numpy(initial(KINDS[kind])(shape))
    assert values.shape == shape and values.dtype == np.float32
    deviation = keras_values.std()
    assert abs(values.mean() - keras_values.mean()) < 0.05 * deviation
    assert values.std() == pytest.approx(deviation, rel=0.03)
    quantiles = np.linspace(0.1, 0.9, 9)
    found, expected = (np.quantile(each, quantiles) for each in (values, keras_values))
    np.testing.assert_allclose(found, expected, atol=0.06 * deviation)
    if kind not in ("normal", "untruncated"):  # the others are cut
        most, keras_most = (np.abs(x - expected[4]).max() for x in (values, keras_values))
        assert most < 1.05 * keras_most


@of_jax
@pytest.mark.parametrize("kind", KINDS)
def test_the_values_are_the_same_where_jax_compiles_them(kind):
    """Keras compiles the initial values of a variable that is cut over devices."""
    import jax

    draw = initial(KINDS[kind])
    compiled = jax.jit(draw, static_argnames=("shape", "dtype"))
    for shape in ((300, 200), (7,)):
        found = compiled(shape=shape, dtype="float32")
        np.testing.assert_array_equal(found, draw(shape, "float32"))


@of_jax
def test_seeds():
    def values(seed, shape=(50, 40)):
        return to_numpy(initial(initializers.GlorotUniform(seed=seed))(shape))

    np.testing.assert_array_equal(values(1), values(1))
    assert not np.allclose(values(1), values(2))
    generator = keras.random.SeedGenerator(3)
    assert not np.allclose(values(generator), values(generator))
    blocks = values(1, (1 << 15,))  # the second block is not the first again
    assert not np.allclose(blocks[: 1 << 14], blocks[1 << 14 :])


@of_jax
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_types(dtype):
    values = initial("glorot_uniform")((8, 16), dtype)
    assert keras.backend.standardize_dtype(values.dtype) == dtype


def test_what_keras_does_not_draw_is_left_alone():
    class Ours(initializers.GlorotUniform):
        def __call__(self, shape, dtype=None):
            return keras.ops.full(shape, 3.0, dtype)

    for each in (Ours(), initializers.Orthogonal(seed=1), initializers.Zeros()):
        assert initial(each) is each
    assert initial(None) is None


@of_jax
def test_a_model_compiles_few_programs_of_random_numbers():
    script = (
        "import jax, keras, logging\n"
        "jax.config.update('jax_log_compiles', True)\n"
        "names = []\n"
        "class Names(logging.Handler):\n"
        "    def emit(self, record): names.append(record.getMessage())\n"
        "logging.getLogger('jax').addHandler(Names())\n"
        "import keras_vit\n"
        "keras_vit.VisionTransformer('Ti/16', depth=1, image_size=64, num_classes=3)\n"
        "compiled = [n for n in names if 'Finished XLA compilation' in n]\n"
        "drawn = [n for n in compiled if 'block' in n or 'normal' in n or 'uniform' in n]\n"
        "print(len(compiled), len(drawn))\n"
    )
    compiled, drawn = map(int, run_in_fresh_process(script).split())
    assert compiled > drawn > 0 and drawn <= 3  # uniform, normal and truncated


def test_the_configuration_is_that_of_keras():
    layer = next(x for x in tiny_vit()._flatten_layers() if hasattr(x, "kernel_initializer"))
    kind = type(layer.kernel_initializer)
    assert kind.__module__.startswith("keras.")
    assert layer.get_config()["kernel_initializer"]["class_name"] == kind.__name__
