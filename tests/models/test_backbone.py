"""Models of users with a network of this library inside: the same values as by that network."""

import gc
import re
import weakref

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import evaluation, inspection, recipes, training
from keras_vit.models.backbone import backbones, entering
from keras_vit.preprocessing import TIMM
from tests.arrays import assert_close, assert_same, images, to_numpy, values
from tests.support import randomize, refuses, tiny_bit, tiny_vit

DENSE, CHANGING = keras.layers.Dense, ("scaled", "subclass", "twice")


@keras.saving.register_keras_serializable("tests")
class Around(keras.Model):
    def __init__(self, vit):
        super().__init__()
        self.parts, self.head = {"vit": vit}, DENSE(2)

    def call(self, x, training=False):
        return self.head(self.parts["vit"](2 * x, training=training))


def around(vit, case):
    """A model around a ViT, as users build them."""
    x = keras.Input((16, 16, 3))
    if case == "output":
        return keras.Model(vit.input, DENSE(2)(vit.output))
    if case == "pool":
        return keras.Model(vit.input, DENSE(2)(vit.get_layer("pool").output))
    if case == "block":
        return keras.Model(vit.input, DENSE(2)(vit.get_layer("block_0").output[:, 0]))
    if case == "heads":
        outputs = {name: DENSE(2, name=name)(vit.output) for name in ("age", "kind")}
        return keras.Model(vit.input, outputs)
    if case == "augmented":
        return keras.Sequential([x, keras.layers.RandomFlip(), vit, DENSE(2)])
    if case == "scaled":
        return keras.Model(x, DENSE(2)(vit(keras.layers.Rescaling(2.0)(x))))
    if case == "twice":
        return keras.Sequential([keras.Input((16, 16, 3)), around(vit, "scaled"), DENSE(3)])
    model = Around(vit)
    model(images())
    return model


CASES = ["output", "pool", "block", "heads", "augmented", "scaled", "twice", "subclass"]


@pytest.mark.parametrize("case", CASES)
def test_inspection_sees_what_the_network_sees(case):
    vit, x = randomize(tiny_vit()), images()
    model = around(vit, case)
    network, count = keras_vit.backbone(model), 1 if case == "block" else 2
    seen = 2 * x if case in CHANGING else x
    assert_close(entering(model, network, x), seen, 1e-6)
    expected = inspection.attention_weights(vit, seen, range(count))
    for found, wanted in zip(inspection.attention_weights(model, x), expected, strict=True):
        assert_close(found, wanted, 1e-6)
    found = inspection.token_norms(model, x).patches
    assert_close(found, inspection.token_norms(vit, seen, range(count)).patches, 1e-5)
    assert inspection.layout_of(model) == inspection.layout_of(vit)
    assert_close(inspection.position_similarity(model), inspection.position_similarity(vit), 0)
    assert inspection.patch_components(model, x).values.shape == (4, 2, 2, 3)
    if case not in ("subclass", "heads"):
        assert inspection.relevance_maps(model, x, 1).shape == (4, 2, 2)


def test_relevance_speaks_for_the_classes_of_the_own_head():
    """A head that gives class 2 of the network as class 0."""
    vit, x = randomize(tiny_vit()), images()
    model = keras.Sequential([keras.Input((16, 16, 3)), vit, DENSE(2, use_bias=False)])
    model.layers[-1].kernel.assign(np.array([[0.0, 1], [0, 0], [1, 0]]))
    found = inspection.relevance_maps(model, x, 0)
    assert_close(found, inspection.relevance_maps(vit, x, 2), 1e-5)


@pytest.mark.any_backend
@pytest.mark.parametrize("case", ["output", "pool", "block", "augmented", "scaled", "twice"])
def test_a_saved_and_a_cloned_model_still_know(case, reopened):
    vit = tiny_vit()
    vit.preprocessing = TIMM
    model = around(vit, case)
    wanted = keras_vit.backbone(model)
    for other in (reopened(model), keras.models.clone_model(model)):
        network = keras_vit.backbone(other)
        assert network is not wanted and network.preprocessing == TIMM
        assert (network.variant, network.num_classes) == (wanted.variant, wanted.num_classes)
        assert [v.path for v in network.weights] == [v.path for v in wanted.weights]


@pytest.mark.any_backend
def test_a_hybrid_and_a_bit_are_found():
    none = keras.Sequential([keras.Input((4,)), DENSE(2)])
    refuses(r"Received: Sequential .*which has none", keras_vit.backbone, none)
    hybrid = tiny_vit(stem=(1,), stem_width=0.5, patch_size=2)
    for inner in (hybrid, tiny_bit()):
        model = keras.Model(inner.input, DENSE(2)(inner.output))
        network = keras_vit.backbone(model)
        assert type(network) is type(inner) and network.variant == inner.variant
        assert [v.path for v in network.weights] == [v.path for v in inner.weights]


def test_predictions_take_the_images_of_the_network():
    vit = randomize(tiny_vit())
    vit.preprocessing = TIMM
    pixels = np.random.default_rng(0).integers(0, 256, (2, 20, 24, 3), np.uint8)
    x = keras_vit.preprocess(pixels, vit)
    for case in ("output", "augmented"):
        model = around(vit, case)
        assert_close(keras_vit.preprocess(pixels, model), x, 0)
        found = [p[0].index for p in keras_vit.predict(model, pixels)]
        assert found == to_numpy(model(x)).argmax(-1).tolist()
        measured = evaluation.extract_features(model, (pixels, [0, 1]), progress=False)[0]
        assert_close(measured, evaluation.extract_features(model, (x, [0, 1]))[0], 1e-6)
    scaled, floats = around(vit, "scaled"), (pixels[:, :16, :16].astype("float32"), [0, 1])
    found = evaluation.extract_features(scaled, (pixels[:, :16, :16], [0, 1]), progress=False)[0]
    assert_close(found, evaluation.extract_features(scaled, floats, progress=False)[0], 1e-4)
    words = r"changes pixels before .*Set model.preprocessing"
    refuses(words, keras_vit.predict, around(vit, "scaled"), pixels)


@pytest.mark.any_backend
def test_two_networks_are_named_and_asked_about():
    one, two = tiny_vit(name="one"), tiny_vit(name="two", depth=1)
    two.preprocessing = TIMM
    x = keras.Input((16, 16, 3))
    model = keras.Model(x, keras.layers.Average()([one(x), two(x)]))
    assert list(backbones(model)) == ["model.get_layer('one')", "model.get_layer('two')"]
    message = "pass the one: model.get_layer('one') or model.get_layer('two')"
    for call in (
        keras_vit.backbone,
        lambda m: inspection.attention_weights(m, images()),
        lambda m: keras_vit.load_weights(m, "digits"),
    ):
        refuses(re.escape(message), call, model)
    pixels = np.zeros((1, 16, 16, 3), np.uint8)
    refuses("networks of different images", keras_vit.predict, model, pixels)
    recipe = recipes.finetune("cifar10", "B/16").replace(layer_decay=0.5)
    refuses("counts the blocks of one depth", recipe.make_optimizer, model)
    training.freeze(model, "block_0")
    assert not one.get_layer("block_0").trainable_variables
    assert not two.get_layer("block_0").trainable_variables
    training.unfreeze(model)
    training.freeze(model, "one/block_0")
    assert two.get_layer("block_0").trainable_variables


@pytest.mark.any_backend
@pytest.mark.parametrize("case", CASES[1:])
def test_rates_of_layers_are_those_of_the_network(case):
    vit = tiny_vit()
    model = around(vit, case)
    recipe = recipes.finetune("cifar10", "B/16").replace(layer_decay=0.5)
    rates = []
    for trained in (keras_vit.backbone(model), model):
        optimizer = recipe.make_optimizer(trained)
        optimizer.build(trained.trainable_variables)
        rates.append(dict(zip(map(id, trained.trainable_variables), optimizer.layer_rates)))
    alone, inside = rates
    assert {key: inside[key] for key in alone} == alone
    assert {inside[key] for key in inside.keys() - alone.keys()} == {1.0}
    assert len(set(alone.values())) == {"block": 2, "pool": 3}.get(case, 4)


def test_low_ranks_are_those_of_the_network():
    x, models = images(), []
    for wrapped in (False, True):
        vit = randomize(tiny_vit())
        model = keras.Sequential([keras.Input((16, 16, 3)), vit, DENSE(2)]) if wrapped else vit
        training.enable_lora(model, 2)
        models.append((vit, model))
    (plain, _), (vit, model) = models
    adapted = training.lora.adapted_layers(plain)
    assert training.lora.adapted_layers(model).keys() == adapted.keys()
    assert {v.path for v in vit.trainable_variables} == {v.path for v in plain.trainable_variables}
    assert model.layers[-1].trainable
    for layer in training.lora.adapted_layers(model).values():
        layer.lora_kernel_b.assign(0.1 + 0 * layer.lora_kernel_b)
    merged = training.merge_lora(model)
    assert not training.lora.adapted_layers(merged)
    assert_close(merged(x), model(x), 1e-5)


@pytest.mark.any_backend
def test_weights_go_into_the_network_and_out_of_it(tmp_path):
    source, vit = randomize(tiny_vit()), tiny_vit()
    keras_vit.save_weights(source, tmp_path / "a.safetensors")
    model = around(vit, "output")
    report = keras_vit.load_weights(model, tmp_path / "a.safetensors")
    assert len(report.loaded) == len(source.weights)
    assert_same(values(vit), values(source))
    words, path = r"What stands around .*backbone\(model\)", tmp_path / "b.safetensors"
    refuses(words, keras_vit.save_weights, model, path)
    keras_vit.save_weights(keras_vit.backbone(model), path)
    refuses(words, keras_vit.resize, model, image_size=32)
    resized = keras_vit.resize(keras_vit.backbone(model), image_size=32)
    assert resized.grid == (4, 4) and resized.num_classes == 3
    again = keras_vit.from_checkpoint(path)
    assert_close(again(images()), source(images()), 1e-5)


@pytest.mark.any_backend
def test_what_changes_images_or_outputs_has_no_place_in_the_network(tmp_path):
    layers, vit = keras.layers, tiny_vit()
    for model in (
        keras.Sequential([layers.Rescaling(2.0), vit]),
        keras.Sequential([vit, layers.Activation("sigmoid")]),
        keras.Model(vit.input, layers.ReLU()(vit.output)),
    ):
        words = r"further changes of images or outputs; .*backbone\(model\)"
        refuses(words, keras_vit.merge_tokens, model, 1)
        refuses(words, keras_vit.save_weights, model, tmp_path / "vit.npz")
    for model in (
        keras.Sequential([layers.RandomFlip(), vit, layers.Dropout(0.5)]),
        keras.Model(vit.input, vit.output),
    ):
        assert keras_vit.resize(model, image_size=32).grid == (4, 4)


def test_a_model_that_was_looked_into_is_freed():
    model = around(tiny_vit(), "pool")
    inspection.attention_weights(model, images())
    inspection.relevance_maps(model, images(), 0)
    known = weakref.ref(model)
    del model
    gc.collect()
    assert known() is None


@pytest.mark.any_backend
@pytest.mark.parametrize("class_token", [True, False])
@pytest.mark.parametrize("pool", ["mean", "map", None])
def test_a_graph_that_is_cut_before_the_pool_keeps_its_tokens(pool, class_token):
    """Whether there is a class token follows from the tokens, not from the pool that is cut off."""
    vit = tiny_vit(pool=pool, class_token=class_token)
    network = keras_vit.backbone(around(vit, "block"))
    assert network.variant.class_token == class_token and network.variant.pool is None
    assert network(images()).shape[1] == 4 + class_token


@pytest.mark.any_backend
@pytest.mark.parametrize("field, norm", [("norm_after_pool", True), ("distillation", False)])
def test_a_graph_that_is_cut_before_the_pool_lacks_what_follows_it(field, norm):
    vit = tiny_vit(pool="mean" if norm else "token", class_token=True, **{field: True})
    model = around(vit, "block")
    network = keras_vit.backbone(model)
    assert not getattr(network.variant, field)
    assert network.variant.learned_tokens == vit.variant.learned_tokens
    maps = keras_vit.features(model, blocks=1, norm=norm)
    assert_close(maps(images()), keras_vit.features(vit, blocks=[0], norm=norm)(images()), 0)


@pytest.mark.any_backend
@pytest.mark.parametrize("name", ["patch_encoder", "root", "stage_1_unit_1", "pool"])
def test_a_graph_may_end_at_any_layer(name):
    whole = tiny_vit() if name == "patch_encoder" else tiny_bit()
    whole.preprocessing = TIMM
    wanted = keras.Model(whole.input, whole.get_layer(name).output)
    network = keras_vit.backbone(keras.Model(whole.input, wanted.output * 2))
    assert type(network) is type(whole) and network.preprocessing == TIMM
    assert_close(network(images()), wanted(images()), 0)
    if name.startswith("stage"):
        refuses("which was left out; choose norm=False", keras_vit.features, wanted, blocks=1)
        maps = keras_vit.features(wanted, blocks=1, norm=False)
        assert_close(maps(images()), wanted(images()), 0)
