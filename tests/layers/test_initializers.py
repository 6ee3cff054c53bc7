"""Fresh weights follow the authors' code; JAX draws them by few programs."""

import keras
import numpy as np
import pytest
from keras import initializers

from keras_vit.layers import AttentionPool
from keras_vit.layers.kernels import initial
from tests.support import BACKEND, run_in_fresh_process, tiny_vit, to_numpy, values

WIDTH, HEADS, PATCH_VALUES = 64, 4, 8 * 8 * 3


@pytest.fixture(scope="module")
def model():
    return tiny_vit(width=WIDTH, num_heads=HEADS, depth=1, representation_size=48)


@pytest.fixture(scope="module")
def fresh(model):
    return values(model)


def assert_xavier_uniform(kernel, fan_in, fan_out):
    bound = np.sqrt(6 / (fan_in + fan_out))
    assert 0.98 * bound < np.abs(kernel).max() <= bound
    assert kernel.std() == pytest.approx(bound / np.sqrt(3), rel=0.03)


@pytest.mark.parametrize("name", ["query", "key", "value", "out"])
def test_attention_kernels_are_xavier_uniform_as_matrices(fresh, name):
    """The fans are those of the (width, width) matrix, not of a kernel with a head axis."""
    assert_xavier_uniform(fresh[f"block_0/attention/{name}/kernel"], WIDTH, WIDTH)
    np.testing.assert_array_equal(fresh[f"block_0/attention/{name}/bias"], 0)


def test_mlp_and_pre_logits(fresh):
    assert_xavier_uniform(fresh["pre_logits/kernel"], WIDTH, 48)
    assert_xavier_uniform(fresh["block_0/mlp/dense_1/kernel"], WIDTH, 4 * WIDTH)
    assert_xavier_uniform(fresh["block_0/mlp/dense_2/kernel"], 4 * WIDTH, WIDTH)
    biases = [fresh[f"block_0/mlp/dense_{i}/bias"] for i in (1, 2)]
    assert np.concatenate(biases).std() == pytest.approx(1e-6, rel=0.15)


def test_patch_projection_is_lecun_normal(fresh):
    kernel = fresh["patch_encoder/projection/kernel"]
    assert kernel.shape == (PATCH_VALUES, WIDTH)
    assert kernel.std() == pytest.approx(1 / np.sqrt(PATCH_VALUES), rel=0.03)


def test_zeros(fresh):
    for name in ("patch_encoder/class_token", "patch_encoder/projection/bias", "pre_logits/bias"):
        np.testing.assert_array_equal(fresh[name], 0)
    for name in ("head/kernel", "head/bias"):
        np.testing.assert_array_equal(fresh[name], 0)


def test_norms(model, fresh):
    block = model.get_layer("block_0")
    norms = {"norm": model.get_layer("norm"), "block_0/norm_1": block.norm_1}
    norms["block_0/norm_2"] = block.norm_2
    for name, layer in norms.items():
        assert layer.epsilon == 1e-6
        np.testing.assert_array_equal(fresh[f"{name}/gamma"], 1)
        np.testing.assert_array_equal(fresh[f"{name}/beta"], 0)


def test_attention_pooling():
    pool = AttentionPool(HEADS, 4 * WIDTH, name="pool")
    pool.build((None, 5, WIDTH))
    fresh = values(pool)
    assert pool.norm.epsilon == 1e-6
    probe, bound = fresh["probe"], np.sqrt(6 / (1 + WIDTH))
    assert 0.8 * bound < np.abs(probe).max() <= bound
    assert probe.std() == pytest.approx(bound / np.sqrt(3), rel=0.25)
    assert_xavier_uniform(fresh["attention/query/kernel"], WIDTH, WIDTH)
    assert_xavier_uniform(fresh["attention/out/kernel"], WIDTH, WIDTH)


EVERY_LAYER = {"position": "learned_1d", "position_at": "every_layer"}


@pytest.mark.parametrize(
    "options", [{"position": "learned_2d"}, EVERY_LAYER, {"position": "relative"}]
)
def test_no_two_random_variables_start_equal(options):
    """Rows and columns, or the positions of two blocks, must not begin as copies."""
    fresh = list(values(tiny_vit(**options)).items())
    random = [(path, value) for path, value in fresh if value.std() > 0]
    for i, (path, value) in enumerate(random):
        for other_path, other in random[:i]:
            same = value.shape == other.shape and (value == other).all()
            assert not same, f"{path} starts as a copy of {other_path}"


def test_the_seed_decides_every_fresh_weight():
    def fresh(seed):
        keras.utils.set_random_seed(seed)
        return values(tiny_vit(depth=1))

    first, again, other = fresh(1), fresh(1), fresh(2)
    for path, value in first.items():
        np.testing.assert_array_equal(value, again[path], err_msg=path)
        if value.std() > 0:
            assert (value != other[path]).any(), f"{path} does not depend on the seed"


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
        "import tests.bare\n"
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
