"""Low-rank adaptation of a whole model."""

import json
import warnings
import zipfile

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import training
from keras_vit.exports.exporter import prepared
from keras_vit.exports.graph import served
from keras_vit.training.freeze import paths
from keras_vit.training.lora import adapted_layers
from tests.support import (
    assert_close,
    dtype_of,
    images,
    largest,
    randomize,
    refuses,
    tiny_vit,
    to_numpy,
    values,
)

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
PROJECTIONS = {f"attention/{name}" for name in ("query", "key", "value", "out")}
DENSE = PROJECTIONS | {"mlp/dense_1", "mlp/dense_2"}


def adapted(rank=2, dtype=None, **options):
    """A model with LoRA whose product is not zero."""
    model = randomize(tiny_vit(depth=1, dtype=dtype))
    summary = training.enable_lora(model, rank, **options)
    rng = np.random.default_rng(0)
    for layer in adapted_layers(model).values():
        layer.lora_kernel_b.assign(rng.normal(size=layer.lora_kernel_b.shape) / 5)
    return model, summary


def trained(model):
    return [v.path for v in model.trainable_variables]


def test_weights_that_are_loaded_later_leave_a_gradient(tmp_path):
    """Keras loads both factors as zero, and then neither has one."""
    base, model = randomize(tiny_vit()), tiny_vit()
    base.save_weights(tmp_path / "base.weights.h5")
    training.enable_lora(model, 2)
    model.load_weights(tmp_path / "base.weights.h5")
    assert_close(model(images()), to_numpy(base(images())), 1e-6)
    assert all(to_numpy(layer.lora_kernel_a).any() for layer in adapted_layers(model).values())


def test_it_adapts_attention_and_mlp_and_trains_the_head():
    model = randomize(tiny_vit())
    before = to_numpy(model(images()))
    summary = training.enable_lora(model, 2)
    assert set(adapted_layers(model)) == {f"block_{i}/{name}" for i in (0, 1) for name in DENSE}
    assert_close(model(images()), before, 1e-6)
    factors = {f"block_{i}/{d}/lora_kernel_{x}" for i in (0, 1) for d in DENSE for x in "ab"}
    assert {*trained(model)} == factors | {"head/kernel", "head/bias"}
    # Width 8, two heads of 4, MLP 32: query, key and value; out; the MLP; the head.
    block = 3 * (8 * 2 * 2 + 2 * 4) + (2 * 4 * 2 + 2 * 8) + (8 * 2 + 2 * 32) + (32 * 2 + 2 * 8)
    assert summary.trainable == 2 * block + 8 * 3 + 3
    # The gate is adapted, and both heads are trained.
    model = randomize(tiny_vit(depth=1, mlp="swiglu", rotary="mixed", distillation=True))
    training.enable_lora(model, 2)
    assert set(adapted_layers(model)) == {f"block_0/{name}" for name in DENSE | {"mlp/gate"}}
    others = {path for path in trained(model) if "lora_kernel" not in path}
    heads = ("head", "head_distillation")
    assert others == {f"{head}/{name}" for head in heads for name in ("kernel", "bias")}


def test_patterns_and_what_else_is_trained():
    model = tiny_vit()
    training.enable_lora(model, 1, patterns="block_*/attention/[qv]*", train=("norm", "bias"))
    places = {f"block_{i}/attention/{name}" for i in (0, 1) for name in ("query", "value")}
    assert set(adapted_layers(model)) == places
    others = {"norm/gamma", "norm/beta", "head/bias", "block_1/attention/key/bias"}
    assert others <= {*trained(model)}
    assert not any(path.endswith("/kernel") for path in trained(model))


def test_training_moves_the_factors_alone():
    model, _ = adapted(train=())
    before = values(model)
    model.compile(keras.optimizers.SGD(0.1), LOSS)
    model.fit(images(), np.arange(4) % 3, verbose=0)
    for path, value in values(model).items():
        if "lora_kernel" not in path:
            assert_close(value, before[path], 0)
        elif "key" not in path:
            assert largest(value - before[path]) > 0, path


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_merging_gives_a_plain_model_with_the_same_outputs(dtype):
    model, _ = adapted(dtype=dtype, alpha=4.0)
    x, merged = images(), training.merge_lora(model)
    assert not adapted_layers(merged) and len(merged.trainable_variables) == len(merged.weights)
    assert [v.path for v in merged.weights] == [v.path for v in tiny_vit(depth=1).weights]
    assert_close(merged(x), model(x), 2e-6 if dtype == "float32" else 0.1)
    query = model.get_layer("block_0").attention.query
    factors = to_numpy(query.lora_kernel_a) @ to_numpy(query.lora_kernel_b)
    expected = to_numpy(query._kernel) + 2.0 * factors  # alpha / rank
    assert_close(merged.get_layer("block_0").attention.query.kernel, expected, 1e-6)
    assert dtype_of(merged.get_layer("block_0").attention.query._kernel) == "float32"
    assert len(adapted_layers(model)) == len(DENSE)


def test_merging_a_model_of_keras_layers():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="dense")])
    training.enable_lora(model, 1, "dense", train=())
    model.layers[0].lora_kernel_b.assign(np.ones((1, 3)))
    merged, x = training.merge_lora(model), np.ones((2, 4), "float32")
    assert not merged.layers[0].lora_enabled
    assert_close(merged(x), model(x), 1e-6)


@pytest.mark.parametrize("alpha", [3.0, 0.0])
def test_a_saved_model_opens_with_its_adaptation(alpha, tmp_path):
    model, _ = adapted(alpha=alpha)
    model.compile("adam", LOSS)
    model.fit(images(), np.arange(4) % 3, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert_close(loaded(images()), model(images()), 0)
    assert_close(training.merge_lora(loaded)(images()), model(images()), 2e-6)
    assert adapted_layers(loaded).keys() == adapted_layers(model).keys()
    for layer in adapted_layers(loaded).values():
        assert (layer.lora_rank, layer.lora_alpha) == (2, alpha)
    assert trained(loaded) == trained(model)
    for step in (model, loaded):  # the state of the optimizer fits as well
        step.fit(images(), np.arange(4) % 3, verbose=0)
    assert_close(loaded(images()), model(images()), 1e-5)


def test_the_parts_and_the_sum_go_through_a_file(tmp_path):
    model, _ = adapted(alpha=3.0)
    training.save_lora(model, tmp_path / "lora.npz")
    base = tiny_vit(depth=1)
    for path, variable in paths(base).items():
        if not path.startswith("head/"):
            variable.assign(values(model)[path])
    for each in (base, model):  # `model` has it already
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            training.load_lora(each, tmp_path / "lora.npz")
        assert_close(each(images()), model(images()), 1e-6)
        assert trained(each) == trained(model)
    # Weights with their adaptation load into a model without.
    plain = tiny_vit(depth=1)
    model.save_weights(tmp_path / "model.weights.h5")
    plain.load_weights(tmp_path / "model.weights.h5")
    assert_close(plain(images()), model(images()), 1e-6)


def test_the_parts_say_how_images_are_prepared_and_outputs_are_read(tmp_path):
    model, _ = adapted()
    model.preprocessing = keras_vit.Preprocessing(mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    model.reading, model.class_names = "sigmoid", ("a", "b", "c")
    training.save_lora(model, tmp_path / "lora.npz")
    base = tiny_vit(depth=1)
    around = keras.Model(base.input, keras.layers.Activation("linear")(base.output))
    for each in (base, around):
        with pytest.warns(UserWarning, match="other weights than those"):
            training.load_lora(each, tmp_path / "lora.npz")
    assert base.preprocessing == model.preprocessing
    assert (base.reading, base.class_names) == ("sigmoid", ("a", "b", "c"))
    before = dict(np.load(tmp_path / "lora.npz"))
    del before["records"], before["base"]
    np.savez(tmp_path / "before.npz", **before)
    training.load_lora(base, tmp_path / "before.npz")
    assert base.class_names == ("a", "b", "c")


def user_model():
    """A head with moving averages behind a network, as a user builds it of Keras's layers."""
    network = randomize(tiny_vit(depth=1, num_classes=0))
    normal = keras.layers.BatchNormalization(momentum=0.1, name="normal")(network.output)
    return keras.Model(network.input, keras.layers.Dense(3, name="logits")(normal))


def test_a_model_of_the_user_s_with_the_moving_averages_of_a_head(tmp_path):
    model, other = user_model(), user_model()
    training.enable_lora(model, 2, alpha=3.0)
    model.compile(keras.optimizers.SGD(0.1), LOSS)
    model.fit(images(), np.arange(4) % 3, epochs=2, verbose=0)
    before = trained(model)
    training.save_lora(model, tmp_path / "lora.npz")
    assert trained(model) == before
    training.load_lora(other, tmp_path / "lora.npz")
    assert_close(other(images()), model(images()), 1e-6)
    names = [[v.name for v in each.trainable_variables] for each in (other, model)]
    assert names[0] == names[1]
    model.save(tmp_path / "model.keras")
    opened = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    assert adapted_layers(opened).keys() == adapted_layers(model).keys()
    assert_close(opened(images()), model(images()), 0)
    # A model of Keras's class opened with the sum where its file does not say what was changed.
    with zipfile.ZipFile(tmp_path / "model.keras") as new:
        entries = {name: new.read(name) for name in new.namelist()}
    entries["config.json"] = entries["config.json"].replace(b'"changed_layers"', b'"unknown"')
    with zipfile.ZipFile(tmp_path / "earlier.keras", "w") as earlier:
        for name, data in entries.items():
            earlier.writestr(name, data)
    opened = keras.saving.load_model(tmp_path / "earlier.keras", compile=False)
    assert not adapted_layers(opened)
    assert_close(opened(images()), model(images()), 1e-5)


def test_a_merged_model_of_the_user_s_is_read_as_before():
    model = user_model()
    model.compile("sgd", keras.losses.BinaryCrossentropy(from_logits=True))
    model.preprocessing = keras_vit.Preprocessing(mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    model.class_names = ("a", "b", "c")
    training.enable_lora(model, 1)
    x = np.full((1, 16, 16, 3), 9, "uint8")
    before, merged = keras_vit.predict(model, x), training.merge_lora(model)
    after = [each for image in keras_vit.predict(merged, x) for each in image]
    assert [each.label for each in after] == [each.label for image in before for each in image]
    for each, other in zip(after, before[0]):
        assert each.probability == pytest.approx(other.probability, abs=1e-5)
    texts = served(prepared(model), True).texts
    assert (texts["reading"], json.loads(texts["class_names"])) == ("sigmoid", ["a", "b", "c"])
    assert json.loads(texts["preprocessing"])["mean"] == [0.1, 0.2, 0.3]


def test_wrong_calls_leave_the_model_as_it_is(tmp_path):
    model = tiny_vit(depth=1)
    for options, message in (
        ({"rank": 0}, "rank must be a positive integer"),
        ({"rank": 5}, "rank=5, and 'block_0/attention/.*choose at most 4"),
        ({"rank": 1, "patterns": "norm_1"}, "selects nothing.*norm_1"),
        ({"rank": 1, "train": "haed"}, "selects nothing.*haed.*head"),
    ):
        refuses(message, training.enable_lora, model, **options)
        assert not adapted_layers(model) and not model.non_trainable_weights
    for call in (training.merge_lora, lambda m: training.save_lora(m, tmp_path / "x.npz")):
        refuses(r"has no LoRA.*enable_lora first", call, model)
    training.enable_lora(model, 1)
    refuses(r"once.*rank 1; merge_lora", training.enable_lora, model, 1)
    refuses(r"LoRA, which.*merge_lora", keras_vit.save_weights, model, tmp_path / "x.npz")


def test_files_that_do_not_fit(tmp_path):
    model, _ = adapted()
    training.save_lora(model, tmp_path / "lora.npz")
    for other in (tiny_vit(depth=1, width=16), tiny_vit(depth=1, num_classes=5), adapted(1)[0]):
        before = [(v.path, v.shape) for v in other.weights]
        refuses("does not fit", training.load_lora, other, tmp_path / "lora.npz")
        assert [(v.path, v.shape) for v in other.weights] == before
    np.savez(tmp_path / "other.npz", x=np.ones(2))
    refuses("that save_lora wrote", training.load_lora, model, tmp_path / "other.npz")
