"""Pipelines: which batches there are, that both engines make the same, and unreadable images."""

import importlib.util
import itertools
import warnings

import numpy as np
import pytest

from keras_vit.data import Transform, load
from tests.data.pipeline_cases import (
    RANDOM,
    class_folders,
    numbered,
    numbers,
    photographs,
    recipe,
)

pytestmark = pytest.mark.any_backend
THREADED = [name for name in ("tensorflow", "grain") if importlib.util.find_spec(name)]
ENGINES = [*THREADED, "numpy"]
both_engines = pytest.mark.skipif(len(THREADED) < 2, reason="needs TensorFlow and Grain")


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param


def assert_same(first, second, tolerance=0.0):
    for (images, labels), (other_images, other_labels) in zip(first, second, strict=True):
        np.testing.assert_allclose(images, other_images, rtol=0, atol=tolerance)
        np.testing.assert_allclose(labels, other_labels, rtol=0, atol=tolerance)
        assert images.dtype == other_images.dtype == np.float32
        assert labels.dtype == other_labels.dtype


def test_an_epoch_of_training_shows_every_example_once_in_an_order_of_its_own(engine):
    train = load(numbered(300), recipe(batch=32, seed=4), engine=engine)
    epochs = [[numbers(images) for images, _ in train.epoch(number)] for number in (0, 1)]
    assert train.steps_per_epoch == len(train) == len(epochs[0]) == 9
    for batches in epochs:
        seen = [number for batch in batches for number in batch]
        assert {len(batch) for batch in batches} == {32}
        assert len(set(seen)) == len(seen) == 288 and seen != sorted(seen)
    assert epochs[0] != epochs[1]
    other = load(numbered(300), recipe(batch=32), seed=5, engine=engine)
    assert numbers(next(iter(other))[0]) != epochs[0][0]


def test_labels_stay_with_their_images(engine):
    for images, labels in load(numbered(40), recipe(), engine=engine):
        assert labels.shape == (8, 5) and labels.dtype == np.float32
        assert labels.sum(-1).tolist() == [1.0] * 8
        assert labels.argmax(-1).tolist() == [number % 5 for number in numbers(images)]


def test_evaluation_goes_through_everything_in_order(engine):
    test = load(numbered(27), recipe(), "test", engine=engine)
    batches = list(test)
    assert [number for images, _ in batches for number in numbers(images)] == list(range(27))
    assert np.concatenate([labels for _, labels in batches]).tolist() == [i % 5 for i in range(27)]
    assert batches[0][1].dtype == np.int32
    assert [len(labels) for _, labels in batches] == [8, 8, 8, 3]
    assert (test.num_examples, test.num_classes, test.steps_per_epoch) == (27, 5, 4)
    assert_same(test, batches)  # a second pass is the same


@both_engines
@pytest.mark.parametrize("mix", [{"mixup": 0.5}, {"cutmix": 1.0}, {}], ids=str)
def test_engines_make_the_same_batches_of_arrays(mix):
    """Shuffled, cropped, flipped, mixed, over the end of an epoch."""
    made = recipe(batch=16, train=RANDOM, seed=3, **mix)
    batches = [
        list(load("digits", made, "train[:40]", engine=engine).from_step(1, steps=3))
        for engine in ENGINES
    ]
    assert_same(*batches[:2], tolerance=1e-6)
    assert_same(*batches[1:])
    assert len(batches[0]) == 3 and batches[0][0][0].shape == (16, 12, 12, 1)


@both_engines
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_engines_make_the_same_batches_of_files(tmp_path, suffix):
    class_folders(tmp_path, suffix=suffix)
    made = recipe(batch=4, train=RANDOM, evaluate=Transform((12, 12)))
    for split in ("train+test", "test"):
        pipelines = [load(tmp_path, made, split, engine=engine) for engine in ENGINES]
        assert_same(*pipelines[:2], tolerance=2 / 127.5 if suffix == ".jpg" else 1e-6)
        assert_same(*pipelines[1:])


@pytest.mark.parametrize("step", [0, 3, 5, 11])
def test_a_run_resumes_at_any_step_with_the_batches_it_would_have_seen(engine, step):
    made = recipe(batch=8, train=RANDOM, mixup=0.3, seed=2)
    train = load("digits", made, "train[:40]", engine=engine)
    undisturbed = list(train.from_step(0, steps=step + 2))
    assert_same(train.from_step(step, steps=2), undisturbed[step:])
    assert_same([train.from_step(step)[0]], undisturbed[step : step + 1])


def test_threads_do_not_matter(engine):
    made = recipe(batch=8, train=RANDOM, cutmix=1.0)
    assert_same(*(load("digits", made, "train[:40]", engine=engine, threads=n) for n in (1, 7)))


def test_slices_of_training_data_stay_apart(engine):
    made = recipe(batch=10)
    train = load(numbered(100), made, "train[:80%]", engine=engine)
    held_out = load(numbered(100), made, "train[80%:]", engine=engine)
    assert train.training and not held_out.training
    assert {n for images, _ in train for n in numbers(images)} == set(range(80))
    assert [n for images, _ in held_out for n in numbers(images)] == list(range(80, 100))


def damage(path):
    path.write_bytes(path.read_bytes()[:300])


def test_unreadable_images_are_named_and_others_stand_in_for_training(tmp_path, engine):
    damaged = class_folders(tmp_path / "train", per_class=8)[4]
    damage(damaged)
    train = load(tmp_path, recipe(batch=8, train=RANDOM), "train", engine=engine)
    assert train.skipped == ()
    with pytest.warns(UserWarning, match=f"{damaged.name} is left out"):
        batches = list(train)
    assert [len(images) for images, _ in batches] == [8, 8]
    assert train.skipped == (str(damaged),)
    # A run that begins later finds the same stand-in.
    with pytest.warns(UserWarning, match="is left out"):
        later = [list(load(tmp_path, recipe(batch=8, train=RANDOM), engine=engine))[1]]
    assert_same(later, batches[1:])


def test_unreadable_images_are_left_out_of_evaluation(tmp_path, engine):
    paths = class_folders(tmp_path / "train", per_class=8)
    damage(paths[3])
    test = load(tmp_path, recipe(batch=5), "train", training=False, engine=engine)
    with pytest.warns(UserWarning, match="is left out"):
        sizes = [len(images) for images, _ in test]
    assert sizes == [5, 4, 5, 1] or sum(sizes) == 15
    assert len(test.skipped) == 1 and test.num_examples == 16
    assert sum(len(images) for images, _ in test) == 15


@pytest.mark.filterwarnings("ignore:.*is left out")
def test_too_many_unreadable_images_are_an_error(tmp_path, engine):
    for path in class_folders(tmp_path / "train")[:5]:
        damage(path)
    train = load(tmp_path, recipe(batch=6, train=RANDOM), engine=engine)
    with pytest.raises(ValueError, match=r"[45] of 12 examples cannot be read(.|\n)*\.jpg"):
        list(train)


def test_an_image_too_small_for_its_crop_is_no_stack_trace_from_below(engine):
    crop = Transform((32, 32), crop="pad_random", padding=2)
    with pytest.raises(ValueError, match=r"cannot be read(.|\n)*pad_random"):
        with pytest.warns(UserWarning):
            list(itertools.islice(load(numbered(16), recipe(train=crop), engine=engine), 1))


def test_one_file_format_for_each_image_and_gray_on_demand(tmp_path, engine):
    for image, suffix in zip(photographs(5), (".jpg", ".png", ".bmp", ".webp", ".tiff")):
        for name in ("a", "b"):
            (tmp_path / "train" / name).mkdir(parents=True, exist_ok=True)
            image.save(tmp_path / "train" / name / f"x{suffix}")
    made = recipe(batch=10, evaluate=Transform((8, 8)))
    for channels in (1, 3):
        test = load(tmp_path, made, "train", training=False, channels=channels, engine=engine)
        images, labels = next(iter(test))
        assert images.shape == (10, 8, 8, channels) == (10, *test.image_shape)
        np.testing.assert_allclose(images[:5], images[5:], atol=1e-6)
        assert labels.tolist() == [0] * 5 + [1] * 5


def test_a_cut_file_is_read_alike_by_every_run(tmp_path, engine):
    """Some crops of it can be decoded; a resumed run finds the same ones as the whole run."""
    damaged = class_folders(tmp_path / "train", per_class=8)[4]
    damaged.write_bytes(damaged.read_bytes()[: damaged.stat().st_size * 7 // 10])
    train = load(tmp_path, recipe(batch=8, train=RANDOM), "train", engine=engine)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = list(train.from_step(0, steps=6))
        fresh = load(tmp_path, recipe(batch=8, train=RANDOM), "train", engine=engine)
        assert_same(fresh.from_step(3, steps=3), whole[3:])


def test_going_on_after_a_pass_does_not_begin_anew(monkeypatch):
    train = load(numbered(20), recipe(batch=8), engine=THREADED[-1])
    begun, batches = [], type(train.stream).batches
    monkeypatch.setattr(
        type(train.stream),
        "batches",
        lambda stream, start, engine: begun.append(start) or batches(stream, start, engine),
    )
    expected = list(train.from_step(0, steps=7))
    assert_same([b for step in (0, 2, 4) for b in train.from_step(step, steps=2)], expected[:6])
    assert begun == [0, 0]
