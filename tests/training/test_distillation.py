"""Distillation: the authors' loss and gradients, any teacher, resumed runs, what is refused."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import data, training
from keras_vit.preprocessing import Preprocessing
from tests.data.pipeline_cases import recipe
from tests.support import (
    assert_close,
    assert_same,
    forward,
    gradients,
    images,
    largest,
    randomize,
    refuses,
    slow_unless_torch,
    tiny_bit,
    tiny_vit,
    to_numpy,
    values,
)
from tests.training.test_resume import check_stopped_run

LABELS = np.array([0, 2, 1, 1])


def small_teacher(size=16, outputs=3, **options):
    """A convolution with batch statistics and dropout, which inference leaves alone."""
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((size, size, 3)),
            layers.Conv2D(4, 3, strides=4),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.GlobalAveragePooling2D(),
            layers.Dense(outputs, **options),
        ]
    )
    randomize(model, seed=1)
    model.layers[1].moving_variance.assign(np.ones(4))
    return model


def distiller(student=None, teacher=None, compiled=True, **options):
    model = training.Distiller(
        student or randomize(tiny_vit(depth=1, distillation=True)),
        teacher or small_teacher(),
        **options,
    )
    if compiled:
        model.compile(training.AdamW(1e-3), metrics=[training.Accuracy(name="accuracy")])
    return model


def log_softmax(x):
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def authors_loss(outputs, outputs_kd, labels, teacher, kind, alpha, tau):
    """`DistillationLoss` of facebookresearch/deit with a cross-entropy, in NumPy."""
    base = -(labels * log_softmax(outputs)).sum(axis=1).mean()
    if kind == "soft":
        target, found = log_softmax(teacher / tau), log_softmax(outputs_kd / tau)
        distance = (np.exp(target) * (target - found)).sum() * tau**2 / outputs_kd.size
    else:
        distance = -np.eye(3)[teacher.argmax(axis=1)] * log_softmax(outputs_kd)
        distance = distance.sum(axis=1).mean()
    return base * (1 - alpha) + distance * alpha


CASES = [("soft", 0.1, 3.0), ("hard", 0.5, 1.0)]


def as_authors(kind, alpha, tau):
    return {"hard": kind == "hard", "alpha": alpha, "temperature": tau, "mean_over_classes": True}


@slow_unless_torch
def test_the_loss_is_the_authors():
    """Of labels that are mixed, and of integers; the paper's divergence is three times as large."""
    rng = np.random.default_rng(2)
    one, two, teacher = rng.normal(size=(3, 4, 3)).astype("float32") * 3
    mixed = rng.dirichlet(np.ones(3), 4).astype("float32")
    student = tiny_vit(depth=1, distillation=True)
    for i, (kind, alpha, tau) in enumerate(CASES):
        model = distiller(student, **as_authors(kind, alpha, tau))
        said = {"labelled": one, "distilled": two, "teacher": teacher}
        said = {name: keras.ops.convert_to_tensor(logits) for name, logits in said.items()}
        labels, given = [(mixed, mixed), (np.eye(3)[LABELS], LABELS)][i]
        found = model.compute_loss(y=keras.ops.convert_to_tensor(given), y_pred=said)
        expected = authors_loss(one, two, labels, teacher, kind, alpha, tau)
        assert float(to_numpy(found)) == pytest.approx(expected, abs=1e-6)
    of_paper = training.DistillationLoss(hard=False, temperature=2.0)(teacher, two)
    expected = 3 * authors_loss(one, two, mixed, teacher, "soft", 1.0, 2.0)
    assert float(to_numpy(of_paper)) == pytest.approx(expected, rel=1e-5)


@slow_unless_torch
@pytest.mark.parametrize("token", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_each_head_gets_the_gradient_of_its_own_part_alone(case, token):
    student = randomize(tiny_vit(depth=1, distillation=token))
    model = distiller(student, **as_authors(*case))
    labels = keras.ops.convert_to_tensor(np.eye(3, dtype="float32")[LABELS])
    compute = lambda outputs: model.compute_loss(y=labels, y_pred=outputs)  # noqa: E731
    found, grads = gradients(model, compute, images(), training=True)
    said = forward(model, images(), training=True)
    teacher = to_numpy(said["teacher"]).astype("float64")
    heads = np.stack([to_numpy(said[name]) for name in ("labelled", "distilled")]).astype("float64")
    loss = lambda heads: authors_loss(*heads, np.eye(3)[LABELS], teacher, *case)  # noqa: E731
    assert found == pytest.approx(loss(heads), abs=1e-6)
    assert_close(teacher, model.teacher(images(), training=False), 1e-6)
    assert_close(said["logits"], student(images()), 1e-6)
    assert grads.keys() == {v.path for v in student.trainable_variables}
    assert all(largest(gradient) > 0 for gradient in grads.values())
    names = [["head"], ["head_distillation"]] if token else [["head", "head"]]
    for row, name in enumerate(names):
        for k in range(3):  # by differences: the bias of a head moves its logits as they are
            step = np.zeros((2, 1, 3))
            step[slice(None) if len(name) == 2 else row, 0, k] = 1e-5
            slope = (loss(heads + step) - loss(heads - step)) / 2e-5
            assert grads[f"{name[0]}/bias"][k] == pytest.approx(slope, abs=1e-6)


def test_a_stopped_run_goes_on_bit_for_bit(tmp_path):
    """The teacher is no part of its checkpoints, and another one is no part of the run."""
    model = distiller(student := tiny_vit(depth=1, distillation=True, dropout=0.1))
    before, after, history, run = check_stopped_run(model, tmp_path)
    assert {"loss", "accuracy", "agreement"} <= set(history)
    changed = {path for path, value in before.items() if (value != after[path]).any()}
    assert {"head/kernel", "head_distillation/kernel"} < changed
    assert not changed & values(model.teacher).keys()
    saved = np.load(next((tmp_path / "one" / "checkpoints").glob("*.npz"))).files
    of_student = [name for name in saved if name.startswith("model/")]
    assert len(of_student) == len(student.variables)
    randomize(model.teacher, seed=2)
    refuses(r"own\.teacher_weights", run, "two")


@slow_unless_torch
def test_training_with_everything():
    """A teacher of other images, mixed labels, half precision, accumulation, averages, LoRA."""
    x = data.load("digits").train_images[:256].astype("float32").repeat(3, axis=-1)
    y = data.load("digits").train_labels[:256]
    x = x / x.max() * 2 - 1
    vit = {"image_size": 8, "patch_size": 2, "num_classes": 10, "width": 16, "depth": 2}
    student = tiny_vit(**vit, dropout=0.1, dtype="mixed_bfloat16", distillation=True)
    assert training.enable_lora(student, 2, train=("head*", "patch_encoder")).frozen
    teacher = small_teacher(16, 10, activation="softmax")
    wanted = Preprocessing(mean=(0.4, 0.5, 0.6), std=(0.2, 0.2, 0.2))
    options = {"from_logits": False, "teacher_preprocessing": wanted, "hard": False}
    model = distiller(student, teacher, False, **options)
    options = {"layer_decay": 0.9, "use_ema": True, "ema_momentum": 0.9}
    optimizer = training.AdamW(3e-3, gradient_accumulation_steps=2, **options)
    loss = training.SoftmaxLoss(label_smoothing=0.1)
    model.compile(optimizer, loss, [training.Accuracy(name="accuracy")])
    mixed = 0.7 * np.eye(10)[y] + 0.3 * np.eye(10)[y[::-1]]
    options = {"batch_size": 32, "verbose": 0, "callbacks": [training.EvaluateAverages()]}
    losses = model.fit(x, mixed, epochs=5, **options).history
    assert losses["loss"][-1] < losses["loss"][0] and losses["agreement"][-1] > 0.1
    results = model.evaluate(x, y, verbose=0, return_dict=True)
    assert set(results) == {"loss", "accuracy"}
    student.compile(loss=training.SoftmaxLoss(label_smoothing=0.1))
    assert student.evaluate(x, y, verbose=0) == pytest.approx(results["loss"], abs=1e-3)
    assert largest(student.get_layer("head").kernel) > 0


@pytest.mark.any_backend
@pytest.mark.parametrize("size", [16, 24])
def test_what_the_teacher_sees(size):
    """Images of its own size, mean and deviation, and a softmax is taken back."""
    teacher = small_teacher(size, activation="softmax")
    options = {"mean": (0.4, 0.5, 0.6), "std": (0.1, 0.2, 0.3)}
    x = images()
    model = distiller(teacher=teacher, teacher_preprocessing=Preprocessing(**options))
    assert not model.from_logits, "the softmax at its end tells"
    seen = ((x + 1) / 2 - np.array(options["mean"])) / np.array(options["std"])
    seen = keras.ops.image.resize(seen.astype("float32"), (size, size))
    said = to_numpy(model.teach(keras.ops.convert_to_tensor(x)))
    expected = to_numpy(teacher(seen, training=False))
    assert_close(np.exp(log_softmax(said)), expected, 1e-4)
    vit = tiny_vit(image_size=32, variable_size=True, name="vit")
    assert distiller(teacher=vit, teacher_size=24).teach(x).shape == (4, 3)


@pytest.mark.any_backend
def test_penalties_and_weights_of_images_count_as_ever():
    """alpha divides the two losses, but no penalty of the student's weights."""
    inputs = keras.Input((16, 16, 3))
    dense = keras.layers.Dense(3, kernel_regularizer=keras.regularizers.L2(0.1))
    student = keras.Model(inputs, dense(keras.layers.Flatten()(inputs)))
    model, x = distiller(student, alpha=0.25), images()
    said, weights = model(x, training=True), np.array([1.0, 0.0, 2.0, 0.5], "float32")
    logits, teacher = to_numpy(said["logits"]), to_numpy(said["teacher"])
    rows = [(logits[i : i + 1], np.eye(3)[[y]], teacher[i : i + 1]) for i, y in enumerate(LABELS)]
    each = [authors_loss(own, own, y, its, "hard", 0.25, 1) for own, y, its in rows]
    expected = np.mean(weights * each) + 0.1 * np.sum(to_numpy(dense.kernel) ** 2)
    labels = keras.ops.convert_to_tensor(LABELS)
    found = model.compute_loss(x, labels, said, keras.ops.convert_to_tensor(weights))
    assert float(to_numpy(found)) == pytest.approx(expected, abs=1e-6)


@slow_unless_torch
def test_a_saved_distiller_goes_on_and_its_student_is_plain(tmp_path):
    model = distiller(alpha=0.3, hard=False, temperature=2.0, teacher_size=16)
    model.fit(images(), LABELS, verbose=0)
    model.save(tmp_path / "both.keras")
    loaded = keras.saving.load_model(tmp_path / "both.keras")
    assert loaded.describe() == model.describe() and not loaded.teacher.trainable
    assert_same(model.weights, loaded.weights)
    loaded.fit(images(), LABELS, verbose=0)
    assert int(loaded.optimizer.iterations) == 2
    model.student.save(tmp_path / "student.keras")
    student = keras.saving.load_model(tmp_path / "student.keras")
    assert type(student) is type(model.student) and len(student.weights) < len(model.weights)


@pytest.mark.any_backend
def test_what_cannot_be():
    student = tiny_vit(depth=1)
    named = tiny_vit(depth=1)
    named.class_names, student.class_names = ("a", "b", "c"), ("a", "c", "b")
    gray = keras.Sequential([keras.layers.Input((16, 16, 1)), keras.layers.Flatten()])
    two = Preprocessing(mean=(0.1, 0.2), std=(1.0, 2.0))
    of_several, softmax = tiny_vit(depth=1), keras.layers.Softmax()(named.output)
    of_several.reading = "sigmoid"
    for one, other, options, error, message in (
        ("student", None, {}, TypeError, "student must be a keras.Model. Received: str"),
        (None, "teacher", {}, TypeError, "teacher must be a keras.Model"),
        (student, student, {}, ValueError, "share no weights"),
        (tiny_vit(num_classes=0), None, {}, ValueError, "must have classes"),
        (tiny_vit(pool=None), None, {}, ValueError, "pool its tokens"),
        (None, small_teacher(outputs=4), {}, ValueError, r"outputs \[\(4,\)\]"),
        (None, gray, {}, ValueError, "as many channels.*build the student with channels=1"),
        (None, of_several, {}, ValueError, "read as 'sigmoid'; say from_logits="),
        (keras.Model(named.inputs, softmax), None, {}, ValueError, "outputs of a softmax"),
        (student, named, {}, ValueError, "'c' of the student where the teacher has 'b'"),
        (None, None, {"alpha": 1.5}, ValueError, "alpha=1.5"),
        (None, None, {"temperature": 0}, ValueError, "temperature"),
        (None, None, {"teacher_size": 0}, ValueError, "teacher_size=0"),
        (None, None, {"teacher_preprocessing": two}, ValueError, "2 for 3 channels"),
    ):
        refuses(message, distiller, one, other, error=error, **options)
    for loss in (training.SigmoidLoss(), keras.losses.CategoricalCrossentropy(), "mse"):
        compile_it = distiller(compiled=False).compile
        refuses("needs a softmax cross-entropy of logits", compile_it, loss=loss)
    x = np.zeros((4, 16, 16, 3), "uint8")
    named_otherwise = data.ImageDataset("set", x, LABELS, x, LABELS, ("a", "b", "c"))
    batches = data.pipeline(named_otherwise, recipe(4, data.Transform(16)))
    refuses("'b' as 1, which is 2 of the model", distiller(None, student).fit, batches, verbose=0)
    model = distiller(tiny_vit(depth=1, variable_size=True))
    with pytest.raises(ValueError, match=r"FlexiblePatches needs.*Distiller"):
        model.fit(images(), LABELS, verbose=0, callbacks=[training.FlexiblePatches([8])])
    with pytest.warns(UserWarning, match="does not say how its images are prepared"):
        assert distiller(of_several, small_teacher()).student.reading == "softmax"
    bit = distiller(tiny_bit(), tiny_vit())
    assert bit(images(), training=True)["logits"].shape == (4, 3)
    for change in (training.freeze, training.unfreeze):
        refuses("A teacher learns nothing.*pass its student", change, bit, "*")
    refuses("A teacher learns nothing.*pass its student", training.enable_lora, bit, 2)
    refuses("A teacher stays as it is.*its student", bit.quantize, "int8")
    bit.trainable = True
    assert bit.student.trainable_variables and not bit.teacher.trainable_variables


def test_a_distiller_predicts_as_its_student_which_takes_names_of_the_teacher():
    student, named = tiny_vit(depth=1), tiny_vit(depth=1)
    named.class_names = ("a", "b", "c")
    model, x = distiller(student, named), np.zeros((2, 16, 16, 3), "uint8")
    assert student.class_names == named.class_names
    assert keras_vit.predict(model, x) == keras_vit.predict(student, x)
    inside = tiny_vit(depth=1)
    distiller(keras.Model(student.input, inside(student.input)), named)
    assert (inside.reading, inside.class_names) == ("softmax", named.class_names)
