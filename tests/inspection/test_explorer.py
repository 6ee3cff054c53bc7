"""The explorer's page holds what the model computes, and does what is clicked and typed."""

import base64
import io
import json
import re
import time
import zlib

import numpy as np
import pytest
from PIL import Image

from keras_vit.inspection import (
    attention_distances,
    attention_maps,
    explore,
    explorer,
    relevance_maps,
    rollout_maps,
)
from tests.inspection.browser import CHROMIUM, Browser
from tests.inspection.cases import random_vit
from tests.support import assert_close, forward, images, to_numpy

NAMES = ["cat", "</script><!--<script><b>dog", "bird"]
WIDE = {"image_size": (16, 24), "patch_size": 8, "registers": 1}


@pytest.fixture(scope="module")
def model():
    return random_vit(**WIDE)


@pytest.fixture(scope="module")
def x():
    return images((2, 16, 24, 3))


@pytest.fixture(scope="module")
def page(model, x, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    assert explore(model, x, str(path), class_names=NAMES) == path
    return path


def data_of(path):
    text = path.read_text("utf-8")
    return json.loads(re.search(r'<script type="application/json".*?>(.*?)</script>', text)[1])


@pytest.mark.any_backend
def test_the_page_is_one_file_that_asks_for_nothing(page):
    text = page.read_text("utf-8")
    assert not re.findall(r"""(?:src|href)=["']|https?:|@import|url\(""", text)
    assert "{{" not in text and text.count("<script") == 2


@pytest.mark.any_backend
def test_files_are_told_by_their_names(model, x, tmp_path):
    files = [tmp_path / name for name in ("cat.png", "dog.png")]
    for file in files:
        Image.fromarray(np.zeros((16, 24, 3), "uint8")).save(file)
    page = explore(model, files, tmp_path / "report.html", blocks=[0])
    assert [image["name"] for image in data_of(page)["images"]] == ["cat.png", "dog.png"]
    page = explore(model, x, tmp_path / "report.html", blocks=[0])
    assert [image["name"] for image in data_of(page)["images"]] == ["0", "1"]


def test_the_facts_in_the_page(page, model, x):
    data = data_of(page)
    assert data["names"] == ["class token", "register 0"]
    assert (data["rows"], data["columns"], data["learned"], data["heads"]) == (2, 3, 2, 2)
    assert data["blocks"] == [0, 1]
    logits = to_numpy(forward(model, x)).astype("float64")
    for i, image in enumerate(data["images"]):
        assert_close(np.array(image["distances"]), attention_distances(model, x)[:, i], 0.006)
        p = np.exp(logits[i]) / np.exp(logits[i]).sum()
        found = [guess["probability"] for guess in image["predictions"]]
        assert_close(np.array(found), np.sort(p)[::-1], 1e-5)
        assert image["predictions"][0]["label"] == NAMES[p.argmax()]


@pytest.mark.any_backend
def test_the_picture_is_the_image_as_the_model_sees_it(page, model, x):
    url = data_of(page)["images"][1]["picture"]
    assert url.startswith("data:image/png;base64,")
    read = np.asarray(Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))))
    expected = np.rint(255 * (0.5 * x[1] + 0.5).clip(0, 1))
    np.testing.assert_array_equal(read, expected)


@pytest.mark.any_backend
def test_models_without_classes_or_positions(tmp_path, x):
    model = random_vit(**WIDE, num_classes=0, position="none")
    data = data_of(explore(model, x[:1], tmp_path / "page.html", blocks=[-1]))
    assert data["positions"] is None and data["blocks"] == [1]
    assert data["images"][0]["predictions"] == []


@pytest.mark.any_backend
def test_more_attention_than_fits(tmp_path, model, x):
    with pytest.raises(
        ValueError, match=r"2 blocks and 2 heads over 8 tokens must fit.* megabytes=0.01"
    ):
        explore(model, x, tmp_path / "page.html", megabytes=0.01)
    assert not (tmp_path / "page.html").exists()


@pytest.mark.any_backend
def test_the_command_line(tmp_path, capsys):
    pillow = pytest.importorskip("PIL.Image")
    from keras_vit.__main__ import main

    random_vit().save(tmp_path / "model.keras")
    pillow.fromarray(np.zeros((20, 30, 3), np.uint8)).save(tmp_path / "a.png")
    arguments = ["explore", str(tmp_path / "model.keras"), str(tmp_path / "a.png")]
    assert main([*arguments, "-o", str(tmp_path / "r.html"), "--blocks", "1"]) == 0
    assert re.search(r"r\.html \(\d\.\d MB\)", capsys.readouterr().out)
    assert data_of(tmp_path / "r.html")["blocks"] == [1]
    assert main([*arguments, "-o", str(tmp_path / "s.html"), "--blocks", "7"]) == 1
    assert "indices go from -2 to 1. Received: blocks=[7]" in capsys.readouterr().err
    assert main(["explore", str(tmp_path / "none.keras"), "a.png"]) == 1
    assert "There is no such model" in capsys.readouterr().err


def noise(*shape, seed=0):
    return np.random.default_rng(seed).dirichlet(np.full(shape[-1], 0.2), shape[:-1])


def dequantize(codes, scales, levels=256):
    """The weights as the page computes them of what it holds."""
    root = codes.astype("float32") / (levels - 1) * (scales[..., None].astype("float32") / 255)
    return root**2


@pytest.mark.any_backend
@pytest.mark.parametrize("levels", explorer.LEVELS)
def test_square_roots_are_off_by_half_a_level_at_most(levels):
    weights = noise(2, 3, 9, 9)
    codes, scales = explorer.quantize(weights)
    assert codes.dtype == scales.dtype == np.uint8 and scales.shape == (2, 3, 9)
    found = dequantize(explorer.coarser(codes, levels), scales, levels)
    # Coarser levels are rounded a second time.
    step = scales[..., None] / 255 * (0.5 / (levels - 1) + (levels < 256) * 0.5 / 255)
    assert (np.abs(np.sqrt(found) - np.sqrt(weights)) <= step + 1e-6).all()


@pytest.mark.any_backend
def test_ends_of_the_range():
    codes, scales = explorer.quantize(np.array([[0.0, 1.0], [0.0, 0.0], [1e-9, 0.0]]))
    assert codes[0].tolist() == [0, 255] and scales[0] == 255
    assert (dequantize(codes, scales)[1] == 0).all()
    assert dequantize(codes, scales)[2].max() < 2e-5


@pytest.mark.any_backend
def test_the_finest_levels_that_fit():
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


needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium"
)


def said(browser):
    return browser.evaluate("document.getElementById('said').textContent")


def place(browser, row, column, of="view"):
    """The middle of a patch in the window."""
    left, top, width, height = browser.evaluate(
        f"(() => {{ const e = document.getElementById('{of}'); e.scrollIntoView();"
        "const r = e.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })()"
    )
    return left + (column + 0.5) / 3 * width, top + (row + 0.5) / 2 * height


def drawn(browser):
    """What the page draws now, as (rows, columns)."""
    return np.reshape(browser.evaluate("Array.from(current().values)"), (2, 3))


@pytest.mark.any_backend
@needs_chromium
def test_what_is_clicked_and_typed_is_shown(page, model, x):
    with Browser(1280, 860) as browser:
        browser.open(page)
        assert "Class token, block 1, mean of the heads" in said(browser)
        assert_close(drawn(browser), attention_maps(model, x)[0], 0.01)
        before = browser.evaluate("document.getElementById('view').toDataURL()")
        browser.click(*place(browser, 1, 2))
        assert "Patch in row 1, column 2" in said(browser)
        assert_close(drawn(browser), attention_maps(model, x, query=(1, 2))[0], 0.01)
        assert browser.evaluate("document.getElementById('view').toDataURL()") != before
        browser.move(*place(browser, 0, 0))  # a click holds the patch, another one lets it go
        assert "row 1, column 2" in said(browser)
        browser.click(*place(browser, 1, 2))
        browser.move(*place(browser, 0, 0))
        assert "Patch in row 0, column 0" in said(browser)
        for key, row, column in (("ArrowRight", 0, 1), ("ArrowDown", 1, 1), ("ArrowDown", 1, 1)):
            browser.press(key)
            assert f"Patch in row {row}, column {column}" in said(browser)
        browser.press(",")
        browser.press("h")
        browser.press("h")
        assert "block 0, head 1" in said(browser)
        expected = attention_maps(model, x, block=0, query=(1, 1), heads=None)[0, 1]
        assert_close(drawn(browser), expected, 0.01)
        browser.press("c")
        assert "Class token" in said(browser)
        browser.evaluate("document.querySelector('[value=rollout]').click()")
        assert_close(drawn(browser), rollout_maps(model, x)[0], 0.01)
        browser.evaluate("document.querySelector('[data-rank=\"1\"]').click()")
        second = np.argsort(-to_numpy(forward(model, x))[0], kind="stable")[1]
        relevance = relevance_maps(model, x[:1], int(second))[0]
        assert_close(drawn(browser), relevance / relevance.max(), 0.003)
        browser.evaluate("document.querySelector('[data-block=\"0\"][data-head=\"0\"]').dispatchEvent"
                         "(new MouseEvent('click', {bubbles: true}))")  # fmt: skip
        assert browser.evaluate("[S.mode, S.block, S.head].join()") == "attention,0,0"
        browser.click(*place(browser, 0, 2, of="similarity"))
        assert "Patch in row 0, column 2: cosine" in said(browser)
        assert drawn(browser)[0, 2] == pytest.approx(1)
        assert not browser.errors


@pytest.mark.any_backend
@needs_chromium
def test_another_image_on_a_phone(page, model, x):
    with Browser(390, 844, phone=True) as browser:
        browser.open(page)
        assert browser.evaluate("document.documentElement.scrollWidth") == 390
        browser.evaluate("(() => { const e = document.getElementById('image'); e.value = 1;"
                         "e.dispatchEvent(new Event('input')); })()")  # fmt: skip
        browser.wait("document.body.dataset.ready === '1'")
        assert_close(drawn(browser), attention_maps(model, x)[1], 0.01)
        small = browser.evaluate(
            "Array.from(document.querySelectorAll('button')).filter((b) => "
            "b.offsetParent && b.getBoundingClientRect().height < 34).length"
        )
        assert small == 0
        assert browser.evaluate("document.querySelectorAll('#classes b').length") == 0
        assert not browser.errors
        time.sleep(0.1)
        browser.screenshot(page.with_suffix(".png"))
    assert page.with_suffix(".png").stat().st_size > 10_000
