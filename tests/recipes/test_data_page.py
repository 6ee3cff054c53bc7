"""docs/data.md: its snippets run, and its tables name what there is."""

import numpy as np
import pytest

from keras_vit.data import augment, transform
from tests.data.pipeline_cases import class_folders, write_prepared
from tests.recipes.snippets import snippets
from tests.support import ROOT

pytestmark = pytest.mark.any_backend

PAGE = ROOT / "docs" / "data.md"


def prepared(folder, name, version, classes, **parts):
    """A set of noise as TensorFlow Datasets prepares it: part -> number of its images."""

    def examples(count):
        labels = [i % classes for i in range(count)]
        return [{"image": np.full((4, 5, 3), y, np.uint8), "label": y} for y in labels]

    found = {part: examples(count) for part, count in parts.items()}
    write_prepared(folder, name, found, version, classes=classes)


def test_the_snippets_of_the_page_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for package in ("tensorflow", "tensorflow_datasets"):
        pytest.importorskip(package)
    class_folders(tmp_path / "photos", per_class=60)
    prepared(tmp_path / "tfds", "cifar10", "3.0.2", 10, train=64, test=40)
    prepared(tmp_path / "tfds", "dtd", "3.0.1", 47, train=800, validation=200, test=47)
    names = {}
    for code in snippets(PAGE):
        exec(code, names)
    assert names["images"].shape == (32, 64, 64, 3) and names["labels"].shape == (32, 10)
    assert names["train"].training and not names["test"].training
    assert not names["held_out"].training
    assert (names["task"].split, names["task"].num_examples) == ("train800val200", 1000)
    assert names["later"].start == 1234
    assert next(iter(names["gray"]))[0].shape == (32, 64, 64, 3)
    assert next(iter(names["spotted"]))[0].shape == (32, 224, 224, 1)
    augment.AUGMENTATIONS.pop("spot")


def test_the_page_has_every_crop():
    text = PAGE.read_text()
    assert [crop for crop in transform.CROPS if f'| `"{crop}"` |' not in text] == []
