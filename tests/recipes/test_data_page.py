"""docs/data.md: its snippets run, and its tables name what there is."""

import io

import numpy as np
import pytest
from PIL import Image

from keras_vit.data import stream, transform
from tests.data.pipeline_cases import class_folders, write_tfrecord_set
from tests.recipes.snippets import snippets
from tests.support import ROOT

PAGE = ROOT / "docs" / "data.md"


def prepared(folder, name, version, classes, **parts):
    """A set of noise as TensorFlow Datasets prepares it: part -> number of its images."""

    def example(label):
        file = io.BytesIO()
        pixels = np.full((4, 5, 3), label, np.uint8)
        Image.fromarray(pixels).save(file, "PNG")
        return {"image": file.getvalue(), "label": label}

    examples = {part: [example(i % classes) for i in range(n)] for part, n in parts.items()}
    write_tfrecord_set(folder, name, examples, ("image", "label"), version, classes=classes)


@pytest.mark.any_backend
def test_the_snippets_of_the_page_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("keras_vit.data.load_pipeline.choose_engine", lambda *_: "numpy")
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
    assert names["later"].start == 1234 and names["third"].start == 2 * 2
    assert next(iter(names["gray"]))[0].shape == (32, 64, 64, 3)
    assert names["batches"][0][0].shape == (32, 16, 16, 1)


@pytest.mark.any_backend
def test_the_page_has_every_crop_and_engine():
    text = PAGE.read_text()
    assert [crop for crop in transform.CROPS if f'| `"{crop}"` |' not in text] == []
    assert [engine for engine in stream.ENGINES if f'| `"{engine}"` |' not in text] == []
