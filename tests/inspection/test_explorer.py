"""The explorer's page holds what the model computes; test_explorer_page.py clicks and types."""

import base64
import io
import json
import os
import re
import zlib

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit.inspection import (
    attention_distances,
    explore,
    explorer,
    patch_components,
    relevance_maps,
)
from keras_vit.inspection.components import component_colors
from keras_vit_cli import main
from tests.inspection.cases import CLASSES, WIDE, random_vit
from tests.support import (
    assert_close,
    every_backend,
    forward,
    refuses,
    slow_unless_torch,
    to_numpy,
)
from tests.test_heads import NAMES, PIXELS, alone, three_heads

pytestmark = pytest.mark.any_backend


def data_of(path, part="index"):
    pattern = rf'<script type="application/json" id="{part}">(.*?)</script>'
    return json.loads(re.search(pattern, path.read_text("utf-8"))[1])


def unpacked(text):
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), "uint8")


def test_the_page_is_one_file_with_pictures_first_that_asks_for_nothing_else(page):
    text = page.read_text("utf-8")
    assert not re.findall(r"""(?:src|href)=["']|https?:|@import|url\(""", text)
    # The index, the program, then the positions and two images.
    assert "{{" not in text and text.count("<script") == 2 + 3

    # Pictures come before what takes long to read.
    places = [text.index(part) for part in ("data:image", "function start(", 'id="look-0-0"')]
    assert places == sorted(places) and "data:image" not in text[places[2] :]

    # What the program asks for is in the page.
    asked = set(re.findall(r'\$\("([\w-]+)"\)', text)) | set(re.findall(r'\("#([\w-]+)', text))
    assert len(asked) > 20
    assert asked <= set(re.findall(r'id="([\w-]+)"', text))


def test_models_without_classes_or_a_graph(model, x, tmp_path):
    cut = keras.Model(model.input, model.layers[-2].output)
    page = explore(cut, x, tmp_path / "report.html", blocks=[0])
    assert data_of(page)["models"][0]["looks"][0]["predictions"] == []
    cut.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    page = explore(cut, x, tmp_path / "report.html", blocks=[0])
    assert data_of(page)["models"][0]["looks"][0]["predictions"]

    class Around(keras.Model):
        def call(self, images):
            return model(images)

    (around := Around()).network = model
    refuses("make a graph of it", explore, around, x, tmp_path / "report.html", blocks=[0])


def test_files_are_told_by_their_names(model, x, tmp_path):
    files = [tmp_path / name for name in ("cat.png", "dog.png")]
    for file in files:
        Image.fromarray(np.zeros((16, 24, 3), "uint8")).save(file)
    page = explore(model, files, tmp_path / "report.html", blocks=[0])
    assert data_of(page)["images"] == ["cat.png", "dog.png"]
    (tmp_path / "notes.txt").write_text("no image")
    for folder in (tmp_path, [str(tmp_path)], np.array([str(tmp_path)])):
        page = explore(model, folder, tmp_path / "report.html", blocks=[0])
        assert data_of(page)["images"] == ["cat.png", "dog.png"]
    page = explore(model, x, tmp_path / "report.html", blocks=[0])
    assert data_of(page)["images"] == ["0", "1"]


@every_backend
def test_names_are_text(tmp_path, model, x):
    """Of a model, of a class, of a file: HTML, control characters, bytes that are no UTF-8."""
    evil = "</script><b>\x1b[2J\u202e" + os.fsdecode(b"\xe9")
    path = explore({evil: model}, x, tmp_path / "page.html", class_names=[evil] * model.num_classes)
    text, index = path.read_text("utf-8"), data_of(path)
    shown = r"</script><b>\x1b[2J\u202e\xe9"
    assert index["models"][0]["name"] == shown
    assert index["models"][0]["looks"][0]["predictions"][0]["label"] == shown
    assert "</script><b>" not in text and "\x1b" not in text and "\u202e" not in text


@every_backend
def test_the_index_of_the_page(page, model, x):
    (data,) = data_of(page)["models"]
    assert data["names"] == ["class token", "register 0"]
    assert (data["rows"], data["columns"], data["learned"], data["heads"]) == (2, 3, 2, 2)
    assert data["blocks"] == [0, 1]
    logits = to_numpy(forward(model, x)).astype("float64")
    for i, image in enumerate(data["looks"]):
        assert_close(np.array(image["distances"]), attention_distances(model, x)[:, i], 0.006)
        p = np.exp(logits[i]) / np.exp(logits[i]).sum()
        found = [guess["probability"] for guess in image["predictions"]]
        assert_close(np.array(found), np.sort(p)[::-1], 1e-5)
        assert image["predictions"][0]["label"] == CLASSES[p.argmax()]
    for block in (0, 1):
        found = patch_components(model, x, block=block)
        for i, image in enumerate(data["looks"]):
            assert_close(np.array(image["explained"][block]), found.explained, 1e-4)
            codes = unpacked(data_of(page, f"look-0-{i}")["components"]).reshape(2, 2, 3, 3)
            assert_close(codes[block] / 255, component_colors(found)[i], 0.003)


def test_two_models(tmp_path, model, x):
    other = random_vit(image_size=(16, 24), patch_size=4, depth=1, num_heads=4, pool="mean")
    page = explore({"a": model, "b": other}, x, tmp_path / "page.html", top=1)
    a, b = data_of(page)["models"]
    assert [a["name"], b["name"]] == ["a", "b"]
    assert [(m["rows"], m["columns"], m["heads"]) for m in (a, b)] == [(2, 3, 2), (4, 6, 4)]
    assert len(unpacked(data_of(page, "look-1-1")["attention"])) == 4 * 24 * 24
    refuses("at least one model", explore, {}, x, tmp_path / "page.html")
    with pytest.raises(ValueError, match=r"takes images of shape .*16, 16"):
        explore({"a": model, "c": random_vit()}, x, tmp_path / "page.html")


def test_models_without_classes_or_positions_and_patches_without_components(tmp_path, x):
    model = random_vit(**WIDE, num_classes=0, position="none")
    page = explore(model, np.zeros_like(x[:1]), tmp_path / "page.html")
    assert data_of(page, "look-0-0")["components"] is None  # of patches that are all alike
    page = explore(model, x[:1], tmp_path / "page.html", blocks=[-1])
    (data,) = data_of(page)["models"]
    assert data_of(page, "positions-0") is None and data["blocks"] == [1]
    assert data["looks"][0]["predictions"] == []


def test_the_picture_is_the_image_as_the_model_sees_it(page, model, x):
    url = data_of(page)["models"][0]["looks"][1]["picture"]
    assert url.startswith("data:image/png;base64,")
    read = np.asarray(Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))))
    expected = np.rint(255 * (0.5 * x[1] + 0.5).clip(0, 1))
    np.testing.assert_array_equal(read, expected)


@every_backend
def test_every_head_shows_its_classes_and_their_relevance(tmp_path):
    model, pixels = three_heads(), PIXELS[:2]
    page = explore(model, pixels, tmp_path / "page.html", top=2, class_names=NAMES)
    for i, look in enumerate(data_of(page)["models"][0]["looks"]):
        maps = iter(data_of(page, f"look-0-{i}")["relevance"])
        shown = iter(look["predictions"])
        for head, rows in keras_vit.predict(model, pixels, 2, NAMES).items():
            for one in rows[i]:
                row = next(shown)
                assert row["label"] == f"{head}: {one.label}"
                assert row.get("value", row.get("probability")) == pytest.approx(one[2], abs=2e-6)
                (relevance,) = relevance_maps(alone(model, head), pixels[i : i + 1], one.index)
                codes = unpacked(next(maps)) / 255
                assert_close(codes, (relevance / (relevance.max() or 1)).ravel(), 0.003)
        assert next(maps, None) is next(shown, None) is None
    with pytest.raises(ValueError, match=r"A dict as class_names .* has 'species', 'weight'"):
        explore(model, pixels, tmp_path / "page.html", class_names={"colour": ["red"]})
    bare = three_heads(compiled=False)
    with pytest.raises(ValueError, match=r"Head 'species': .*Set model\.reading = \{'species'"):
        explore(bare, pixels, tmp_path / "page.html")


def test_more_attention_than_fits_and_no_block_at_all(tmp_path, model, x):
    page = tmp_path / "page.html"
    many = r"2 blocks and 2 heads over 8 tokens must fit.* megabytes=0.01"
    refuses(many, explore, model, x, page, megabytes=0.01)
    none = r"at least one index, or be None\. Received: blocks=\[\]"
    refuses(none, explore, model, x, page, blocks=[])
    assert not page.exists()


@every_backend
@slow_unless_torch
def test_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, heads in (("model", 2), ("other", 4)):
        random_vit(num_heads=heads).save(f"{name}.keras")
    Image.fromarray(np.zeros((20, 30, 3), np.uint8)).save("a.png")
    arguments = "explore model.keras a.png -o r.html --compare other.keras --blocks 1".split()
    assert main(arguments) == 0
    assert re.search(r"r\.html \(\d\.\d\d MB\)", capsys.readouterr().out)
    models = data_of(tmp_path / "r.html")["models"]
    assert [(m["heads"], m["blocks"]) for m in models] == [(2, [1]), (4, [1])]
    assert main([*arguments, "--blocks", "7"]) == 1
    assert "indices go from -2 to 1. Received: blocks=[1, 7]" in capsys.readouterr().err


def noise(*shape, seed=0):
    return np.random.default_rng(seed).dirichlet(np.full(shape[-1], 0.2), shape[:-1])


def dequantize(codes, scales, levels=256):
    """The weights as the page computes them of what it holds."""
    root = codes.astype("float32") / (levels - 1) * (scales[..., None].astype("float32") / 255)
    return root**2


@pytest.mark.parametrize("levels", explorer.LEVELS)
def test_square_roots_are_off_by_half_a_level_at_most(levels):
    weights = noise(2, 3, 9, 9)
    codes, scales = explorer.quantize(weights)
    assert codes.dtype == scales.dtype == np.uint8 and scales.shape == (2, 3, 9)
    found = dequantize(explorer.coarser(codes, levels), scales, levels)
    # Coarser levels are rounded a second time.
    step = scales[..., None] / 255 * (0.5 / (levels - 1) + (levels < 256) * 0.5 / 255)
    assert (np.abs(np.sqrt(found) - np.sqrt(weights)) <= step + 1e-6).all()


def test_ends_of_the_range_and_the_finest_levels_that_fit():
    codes, scales = explorer.quantize(np.array([[0.0, 1.0], [0.0, 0.0], [1e-9, 0.0]]))
    assert codes[0].tolist() == [0, 255] and scales[0] == 255
    assert (dequantize(codes, scales)[1] == 0).all()
    assert dequantize(codes, scales)[2].max() < 2e-5
    codes, _ = explorer.quantize(noise(4, 16, 16))
    levels, text = explorer.fit(codes, 10**6)
    assert levels == 256
    assert zlib.decompress(base64.b64decode(text)) == codes.tobytes()
    fewer, shorter = explorer.fit(codes, len(text) * 0.6)
    assert 8 <= fewer < 256 and len(shorter) <= len(text) * 0.6
    read = np.frombuffer(zlib.decompress(base64.b64decode(shorter)), "uint8")
    np.testing.assert_array_equal(read, explorer.coarser(codes, fewer).ravel())
    levels, coarsest = explorer.fit(codes, 10)
    assert levels == 8 and len(coarsest) > 10
