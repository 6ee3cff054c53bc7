"""The optimizer with the authors' settings, and what stands around a run."""

import re
import warnings

import keras
import numpy as np
import pytest
from keras import layers

from keras_vit import training
from keras_vit.models.compiled_loss import record_reading
from keras_vit.outputs import check_problem, reading_of
from tests.support import tiny_vit, to_numpy


def test_the_schedule_is_that_of_table_3():
    config = training.adamw(0.3, steps=110, warmup_steps=10).get_config()
    schedule = keras.optimizers.schedules.deserialize(config["learning_rate"])
    assert schedule.get_config() == training.WarmupCosine(0.3, 110, 10).get_config()
    assert config["global_clipnorm"] == 1.0 and config["weight_decay"] == 0.0
    assert training.adamw(0.3, steps=110, clip_norm=None).global_clipnorm is None


@pytest.mark.parametrize("position", ["learned_1d", "learned_2d", "relative"])
def test_only_kernels_decay(position):
    """With zero gradients AdamW moves nothing but what decays."""
    model = tiny_vit(depth=1, pool="map", class_token=True, position=position)
    variables = model.trainable_variables
    for variable in variables:  # decay of a zero would not show
        variable.assign(np.ones(variable.shape))
    optimizer = training.adamw(1e-2, steps=10, weight_decay=0.5)
    optimizer.apply([keras.ops.zeros(v.shape) for v in variables], variables)
    moved = {v.path for v in variables if np.any(to_numpy(v) != 1.0)}
    assert moved == {v.path for v in variables if v.path.endswith("/kernel")}


@pytest.mark.parametrize(
    ("end", "from_logits", "words"),
    [
        (None, False, "gives logits, and its loss takes them for probabilities.*from_logits=True"),
        (None, True, None),
        ("softmax", True, "gives probabilities, and its loss takes them for logits"),
        ("softmax", False, None),
    ],
)
def test_a_loss_of_the_wrong_input_is_told_for_models_around_a_vit(end, from_logits, words):
    vit = tiny_vit(num_classes=0)
    model = keras.Model(vit.input, keras.layers.Dense(3, activation=end)(vit.output))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)
    for each in (loss, [loss], {model.output_names[0]: loss}):
        model.compile("sgd", each)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            check_problem(model, None)
        assert len(told) == (words is not None)
        assert words is None or re.search(words, str(told[0].message))


class Batches:
    """What `training.fit` asks of data."""

    steps_per_epoch, batch_size = 1, 2

    def from_step(self, step):
        return iter([(np.zeros((2, 16, 16, 3), "float32"), np.ones((2, 3), "float32"))] * 2)


def test_networks_inside_a_model_keep_how_its_loss_read_them(tmp_path):
    """Taken out of it, or opened without its loss, they would be read as a softmax."""
    loss, x = keras.losses.BinaryCrossentropy(from_logits=True), keras.Input((16, 16, 3))
    for around in (
        lambda vit: vit,
        lambda vit: keras.Model(x, vit(layers.RandomFlip()(x))),
        lambda vit: keras.Model(vit.input, layers.Activation("sigmoid")(vit.output)),
        lambda vit: keras.Sequential([x, keras.Model(x, vit(x)), layers.Identity()]),
    ):
        vit = tiny_vit()
        model = around(vit)
        model.compile("sgd", loss)
        output = tmp_path / model.name
        training.fit(model, Batches(), output, epochs=1, curves=False)
        model.save(output / "m.keras")
        opened = keras.saving.load_model(output / "m.keras", compile=False)
        assert (vit.reading, reading_of(opened).name) == ("sigmoid", "sigmoid")
    heads = {"one": tiny_vit(), "two": tiny_vit()}
    model = keras.Model(x, {head: layers.Identity(name=head)(v(x)) for head, v in heads.items()})
    model.compile("sgd", {"one": loss, "two": "mse"})
    record_reading(model)
    assert {head: v.reading for head, v in heads.items()} == {"one": "sigmoid", "two": "values"}
    model = keras.Model(x, layers.Activation("sigmoid")(tiny_vit()(x)))
    model.compile("sgd", "mse")  # the Brier score
    record_reading(model)
    assert model.layers[-2].reading == reading_of(model).name == "sigmoid"


@pytest.mark.parametrize("as_graph", [False, True])
def test_a_frozen_network_keeps_its_reading(as_graph):
    """Such as a teacher, whose outputs a student is to repeat."""
    student, teacher = tiny_vit(), tiny_vit()
    teacher.trainable, teacher.reading = False, "softmax"
    x = teacher.input if as_graph else keras.Input((16, 16, 3))
    outputs = teacher.output if as_graph else teacher(x)
    model = keras.Model(x, layers.Subtract()([student(x), outputs]))
    model.compile("sgd", "mse")
    record_reading(model)
    assert (student.reading, teacher.reading) == ("values", "softmax")


def test_networks_that_do_not_make_the_outputs_keep_their_reading():
    for classes in (0, 3):
        vit = tiny_vit(num_classes=classes)
        model = keras.Model(vit.input, layers.Dense(3)(vit.output))
        model.compile("sgd", "mse")
        record_reading(model)
        assert vit.reading is None
    features = keras.Model(vit.input, tiny_vit(num_classes=0)(vit.input))
    features.compile("sgd", "cosine_similarity")
    record_reading(features)
    assert features.layers[-1].reading is None
