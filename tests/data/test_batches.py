"""Batches: what they hold, that they repeat, and what `fit` makes of them."""

import keras
import numpy as np
import pytest

from keras_vit.data import Batches, preprocess

COUNT = 20
IMAGES = np.random.default_rng(0).integers(0, 256, (COUNT, 4, 4, 1), dtype="uint8")
LABELS = np.arange(COUNT)  # every example has its own, so that labels tell the order


def noise(images, rng):
    return rng.integers(0, 256, images.shape, dtype="uint8")


def batches(count=COUNT, batch_size=4, **options):
    options = {"shuffle": True, "augment": noise, "seed": 7, **options}
    return Batches(IMAGES[:count], LABELS[:count], batch_size, **options)


def epochs_of(dataset, epochs):
    """[epoch][batch] = (images, labels), by iterating without Keras."""
    seen = []
    for _ in range(epochs):
        seen.append([dataset[index] for index in range(len(dataset))])
        dataset.on_epoch_end()
    return seen


def assert_same(actual, expected):
    assert len(actual) == len(expected)
    for these, those in zip(actual, expected):
        assert len(these) == len(those)
        for (images, labels), (other_images, other_labels) in zip(these, those):
            np.testing.assert_array_equal(labels, other_labels)
            np.testing.assert_array_equal(images, other_images)


def test_plain_batches():
    dataset = Batches(IMAGES, LABELS, 8)
    assert len(dataset) == 3
    images, labels = zip(*dataset)
    assert [len(part) for part in labels] == [8, 8, 4]
    assert images[0].dtype == np.float32 and labels[0].dtype == np.int32
    np.testing.assert_array_equal(np.concatenate(images), preprocess(IMAGES))
    np.testing.assert_array_equal(np.concatenate(labels), LABELS)
    with pytest.raises(IndexError, match=r"outside 0..2"):
        dataset[3]


def test_drop_remainder():
    dataset = Batches(IMAGES, LABELS, 8, drop_remainder=True)
    assert len(dataset) == 2 and [len(labels) for _, labels in dataset] == [8, 8]
    with pytest.raises(ValueError, match="20 images, batch_size=21"):
        Batches(IMAGES, LABELS, 21, drop_remainder=True)


def test_shuffling_keeps_images_with_labels():
    for epoch in epochs_of(batches(augment=None), 3):
        for images, labels in epoch:
            np.testing.assert_array_equal(images, preprocess(IMAGES[labels]))
        assert sorted(np.concatenate([labels for _, labels in epoch])) == list(range(COUNT))


def test_epochs_differ_seeds_differ_and_runs_repeat():
    first, again, other = (epochs_of(batches(seed=seed), 2) for seed in (1, 1, 2))
    assert_same(first, again)
    for these, those in ((first[0], first[1]), (first[0], other[0])):
        assert any((a[1] != b[1]).any() for a, b in zip(these, those))
    # Without a shuffle the augmentation still changes with epoch and batch.
    still = epochs_of(batches(shuffle=False), 2)
    pixels = [images for epoch in still for images, _ in epoch]
    assert len({images.tobytes() for images in pixels}) == len(pixels)


def test_order_and_noise_come_from_different_streams():
    """Epoch 0, batch 0, seed 0 would collide if zeros told the streams apart."""
    drawn = {}

    def record(images, rng):
        drawn.setdefault("order", rng.permutation(COUNT))
        return images

    dataset = batches(augment=record, seed=0)
    order = np.concatenate([labels for _, labels in dataset])
    assert drawn["order"].tolist() != order.tolist()


def test_an_epoch_can_be_read_in_any_order_and_twice():
    dataset = batches()
    forward = [dataset[index] for index in range(5)]
    backward = [dataset[index] for index in reversed(range(5))][::-1]
    assert_same([forward], [backward])


@pytest.mark.parametrize("resumed_at", [1, 3])
def test_resuming_equals_not_stopping(resumed_at):
    whole = epochs_of(batches(), 5)
    assert_same(epochs_of(batches(start_epoch=resumed_at), 5 - resumed_at), whole[resumed_at:])
    moved = batches()
    moved.set_epoch(resumed_at)
    assert_same(epochs_of(moved, 1), whole[resumed_at : resumed_at + 1])


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"batch_size": 0}, "batch_size.*>= 1. Received: 0"),
        ({"batch_size": 2.0}, "batch_size.*Received: 2.0"),
        ({"seed": -1}, "seed.*Received: -1"),
        ({"start_epoch": -1}, "start_epoch.*Received: -1"),
        ({"start_epoch": True}, "start_epoch.*Received: True"),
        ({"augment": "flip"}, "augment must be callable.*'flip'"),
        ({"images": IMAGES[..., 0]}, r"images must have shape.*\(20, 4, 4\)"),
        ({"images": IMAGES[:0]}, "not be empty"),
        ({"images": IMAGES.astype(int)}, "dtype int64"),
        ({"labels": LABELS[:3]}, r"shape \(20,\).*Received: shape \(3,\)"),
        ({"labels": LABELS / 2}, "dtype float64"),
    ],
)
def test_bad_arguments(options, expected):
    with pytest.raises(ValueError, match=expected):
        Batches(**{"images": IMAGES, "labels": LABELS, "batch_size": 4, **options})


@pytest.mark.parametrize(
    "augment, expected",
    [
        (lambda images, rng: images[:, 1:], r"shape \(4, 3, 4, 1\)"),
        (lambda images, rng: images / 255.0, "dtype float64"),
    ],
)
def test_an_augmentation_must_keep_shape_and_dtype(augment, expected):
    with pytest.raises(ValueError, match=f"augment must keep.*Received.*{expected}"):
        batches(augment=augment)[0]


# --- What a model is really trained on, read off the model's own loss and metric. ---------


def code(labels):
    """A sum that tells which examples a batch holds."""
    return float(np.sum(2.0 ** np.asarray(labels)))


class Seen(keras.callbacks.Callback):
    """Collects (examples, mean pixel) of each batch trained on, by epoch."""

    def __init__(self):
        super().__init__()
        self.epochs = []

    def on_epoch_begin(self, epoch, logs=None):
        self.epochs.append([])

    def on_train_batch_end(self, batch, logs=None):
        # Keras logs running means over the epoch; the difference is this batch.
        self.epochs[-1].append((logs["loss"], logs["pixel"]))

    def batches(self):
        for epoch in self.epochs:
            values = np.array(epoch, "float64") * np.arange(1, len(epoch) + 1)[:, None]
            yield np.diff(values, axis=0, prepend=0.0)


def make_model(strategy=None):
    def examples(labels, outputs):
        codes = 2.0 ** keras.ops.cast(labels, "float32")
        # The outputs matter not, but a loss without a gradient is refused.
        return keras.ops.sum(codes, keepdims=True) + 0.0 * keras.ops.sum(outputs)

    def pixel(_, outputs):
        return keras.ops.mean(outputs, keepdims=True)

    inputs = keras.Input((4, 4, 1))
    pooled = keras.layers.GlobalAveragePooling2D()(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(pooled))
    model.compile(keras.optimizers.SGD(0.0), loss=examples, metrics=[pixel])
    return model


def fit(model, dataset, first, last, **options):
    seen = Seen()
    model.fit(dataset, initial_epoch=first, epochs=last, callbacks=[seen], verbose=0, **options)
    return list(seen.batches())


def assert_trained_on(seen, expected):
    assert len(seen) == len(expected)
    for values, epoch in zip(seen, expected):
        assert len(values) == len(epoch)
        for (examples, pixel), (images, labels) in zip(values, epoch):
            assert round(examples) == code(labels)
            np.testing.assert_allclose(pixel, images.mean(), atol=1e-4)


@pytest.mark.parametrize("num_batches", [1, 2, 5])
@pytest.mark.parametrize("keras_shuffle", [True, False])
def test_fit_sees_the_order_expected(num_batches, keras_shuffle):
    """Whatever Keras fetches to build, and however it permutes, twice over."""
    count = 3 * num_batches  # few enough for codes that float32 holds exactly
    expected = epochs_of(batches(count, 3), 5)
    dataset, model = batches(count, 3), make_model()
    seen = fit(model, dataset, 0, 2, shuffle=keras_shuffle)
    model.evaluate(batches(count, 3), verbose=0)
    seen += fit(model, dataset, 2, 3, shuffle=keras_shuffle)  # all is built by now
    assert dataset.epoch == 3
    assert_trained_on(seen, expected[:3])
    # A fresh model and fresh batches, as after a crash.
    resumed = fit(make_model(), batches(count, 3, start_epoch=3), 3, 5)
    assert_trained_on(resumed, expected[3:])


def test_fit_with_validation_and_a_short_last_batch():
    dataset = batches(10, 4)
    fit(make_model(), dataset, 0, 3, validation_data=Batches(IMAGES, LABELS, 8))
    assert dataset.epoch == 3
    sizes = [len(labels) for _, labels in dataset]
    assert sizes == [4, 4, 2]


def test_predictions_come_in_order():
    dataset = Batches(IMAGES, LABELS, 8)
    outputs = make_model().predict(dataset, verbose=0)
    np.testing.assert_allclose(outputs[:, 0], preprocess(IMAGES).mean((1, 2, 3)), atol=1e-5)


def test_a_callback_can_set_the_epoch():
    """For restarts where only Keras knows the epoch."""
    dataset = batches(9, 3)
    seen = Seen()
    follow = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, _: dataset.set_epoch(epoch)
    )
    make_model().fit(dataset, initial_epoch=2, epochs=4, callbacks=[seen, follow], verbose=0)
    assert_trained_on(list(seen.batches()), epochs_of(batches(9, 3), 4)[2:])


def test_steps_per_epoch_divide_an_epoch():
    dataset, model, seen = batches(18, 3), make_model(), Seen()
    model.fit(dataset, steps_per_epoch=3, epochs=4, callbacks=[seen], verbose=0)
    first, second = epochs_of(batches(18, 3), 2)
    assert_trained_on(list(seen.batches()), [first[:3], first[3:], second[:3], second[3:]])


def test_an_interrupted_epoch_counts_as_one():
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = True

    dataset, model = batches(9, 3), make_model()
    model.fit(dataset, epochs=2, callbacks=[Stop()], verbose=0)
    assert_trained_on(fit(model, dataset, 0, 1), epochs_of(batches(9, 3), 2)[1:])


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="tf.distribute is TensorFlow's")
def test_fit_under_a_strategy_sees_the_order_expected():
    """A strategy builds the model from a read-ahead of many batches."""
    import tensorflow as tf

    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        dataset, model = batches(15, 3), make_model()
        seen = fit(model, dataset, 0, 2) + fit(model, dataset, 2, 3)
    assert_trained_on(seen, epochs_of(batches(15, 3), 3))
