"""The explorer's page in a headless Chromium, on a laptop and on a phone: clicks, taps and keys."""

import numpy as np
import pytest

from keras_vit.inspection import attention_maps, explore, relevance_maps, rollout_maps
from tests.inspection.browser import CHROMIUM, Browser
from tests.inspection.cases import random_vit
from tests.support import assert_close, forward, to_numpy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.any_backend,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium"),
]
LAPTOP = {"width": 1366, "height": 768}
PHONE = {"width": 390, "height": 844, "phone": True}


@pytest.fixture(scope="module")
def other():
    """Another grid, fewer blocks, more heads, no class token, no classes."""
    options = {"image_size": (16, 24), "patch_size": 4, "depth": 1, "num_heads": 4}
    return random_vit(**options, pool="mean", num_classes=0)


@pytest.fixture(scope="module")
def pair(model, other, x, tmp_path_factory):
    path = tmp_path_factory.mktemp("pair") / "two.html"
    return explore({"first": model, "second": other}, x, path)


def said(browser, pane=0):
    return browser.evaluate(f"document.querySelectorAll('.said')[{pane}].textContent")


def place(browser, row, column, of=".picture", grid=(2, 3)):
    """The middle of a patch in the window."""
    left, top, width, height = browser.evaluate(
        f"(() => {{ const e = document.querySelector('{of}'); e.scrollIntoView();"
        "const r = e.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })()"
    )
    return left + (column + 0.5) / grid[1] * width, top + (row + 0.5) / grid[0] * height


def drawn(browser, pane=0, grid=(2, 3)):
    """The values that the page draws now, as (rows, columns)."""
    return np.reshape(browser.evaluate(f"Array.from(current(shown()[{pane}]).values)"), grid)


def click(browser, selector):
    """A click in the middle of an element, which must not be covered by another one."""
    left, top = browser.evaluate(
        f"(() => {{ const e = document.querySelector('{selector}');"
        "e.scrollIntoView({block: 'center'});"
        "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
    )
    browser.click(left, top)


def overflowing(browser):
    """Elements that reach out of the window; a list that scrolls by itself may."""
    return browser.evaluate(
        "all('body *').filter((e) => !e.closest('#images') && e.offsetParent &&"
        "e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 80))"
    )


@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_the_image_is_in_sight_before_its_attention_is_read(page, tmp_path, size):
    text = page.read_text("utf-8")
    cut = tmp_path / "cut.html"
    cut.write_text(text[: text.index('<script type="application/json" id="positions-0"')], "utf-8")
    with Browser(**size) as browser:
        browser.open(cut, until="document.querySelector('.picture img')?.complete")
        shown = (
            "(() => { const i = document.querySelector('.picture img'); const r = "
            "i.getBoundingClientRect(); return [i.naturalWidth, r.top, r.bottom, r.width]; })()"
        )
        pixels, top, bottom, width = browser.evaluate(shown)
        assert pixels == 24 and 0 < top < bottom <= size["height"] and width > 300
        assert "the file is not whole" in said(browser)
        browser.errors.clear()
        before = width, top
        browser.open(page)
        _, top, _, width = browser.evaluate(shown)
        assert (width, top) == before  # nothing moves when the attention comes
        assert not browser.errors


def test_what_is_clicked_is_shown(page, model, x):
    with Browser(**LAPTOP) as browser:
        browser.open(page)
        assert "Class token, block 1, mean of the heads" in said(browser)
        assert_close(drawn(browser), attention_maps(model, x)[0], 0.01)
        before = browser.evaluate("document.querySelector('.heat').toDataURL()")
        browser.move(*place(browser, 0, 1))
        assert "Patch in row 0, column 1" in said(browser)
        browser.move(1, 1)  # the choice made before the mouse came is back
        assert "Class token" in said(browser)
        browser.click(*place(browser, 1, 2))
        assert "Patch in row 1, column 2" in said(browser)
        assert_close(drawn(browser), attention_maps(model, x, query=(1, 2))[0], 0.01)
        assert browser.evaluate("document.querySelector('.heat').toDataURL()") != before
        browser.move(*place(browser, 0, 0))  # a click holds the patch, another one lets it go
        assert "row 1, column 2" in said(browser)
        browser.click(*place(browser, 1, 2))
        browser.move(*place(browser, 0, 0))
        assert "Patch in row 0, column 0" in said(browser)
        click(browser, "[value=rollout]")
        click(browser, "#queries button:nth-child(2)")
        assert_close(drawn(browser), rollout_maps(model, x)[0], 0.01)
        click(browser, '[data-rank="1"]')
        second = np.argsort(-to_numpy(forward(model, x))[0], kind="stable")[1]
        relevance = relevance_maps(model, x[:1], int(second))[0]
        assert_close(drawn(browser), relevance / relevance.max(), 0.003)
        click(browser, '[data-block="0"][data-head="0"]')
        assert browser.evaluate("[S.mode, S.block, S.head].join()") == "attention,0,0"
        click(browser, "#components button:nth-child(2)")
        assert "Patches after block 1: red, green and blue are" in said(browser)
        browser.click(*place(browser, 0, 2, of="#similarity canvas"))
        assert "Patch in row 0, column 2: cosine" in said(browser)
        assert drawn(browser)[0, 2] == pytest.approx(1)
        click(browser, "#images button:nth-child(2)")
        browser.wait("document.body.dataset.ready === '0,1,'")
        click(browser, "[value=attention]")
        assert_close(drawn(browser), attention_maps(model, x, 1, (0, 2), None)[1, 0], 0.01)
        assert not browser.errors


def test_keys(page, model, x):
    with Browser(**LAPTOP) as browser:
        browser.open(page)
        browser.click(*place(browser, 0, 0))
        for key, row, column in (("ArrowRight", 0, 1), ("ArrowDown", 1, 1), ("ArrowDown", 1, 1)):
            browser.press(key)
            assert f"Patch in row {row}, column {column}" in said(browser)
        for key in ",hh":
            browser.press(key)
        assert "block 0, head 1" in said(browser)
        expected = attention_maps(model, x, block=0, query=(1, 1), heads=None)[0, 1]
        assert_close(drawn(browser), expected, 0.01)
        for key, text in (("c", "Class token"), ("m", "Mean of the patches"), (".", "block 1"),
                          ("g", "head 0"), ("2", "rollout"), ("4", "red, green"), ("1", "head 0"),
                          ("3", "Relevance for"), ("5", "Choose a patch")):  # fmt: skip
            browser.press(key)
            assert text in said(browser), key
        browser.press("i")
        browser.wait("document.body.dataset.ready === '0,1,'")
        browser.press("b")
        browser.wait("document.body.dataset.ready === '0,1,image 0'")
        for key, there in (("?", True), ("?", False), ("?", True), ("Escape", False)):
            browser.press(key)
            assert browser.evaluate("document.getElementById('help').open") == there
        browser.evaluate("document.getElementById('keys').checked = false")
        browser.press("1")
        assert browser.evaluate("S.mode") == "position"
        named = "all('input, select, button, .picture').filter((e) => e.checkVisibility() && !("
        named += "e.labels?.length || e.textContent.trim() || e.ariaLabel)).length"
        assert browser.evaluate(named) == 0
        assert not browser.errors


def test_two_models_with_one_selection(pair, model, other, x):
    with Browser(**LAPTOP) as browser:
        browser.open(pair)
        assert_close(drawn(browser), attention_maps(model, x)[0], 0.01)
        assert_close(drawn(browser, 1, (4, 6)), attention_maps(other, x)[0], 0.01)
        assert "Mean of the patches, block 0" in said(browser, 1)  # it has no class token
        browser.click(*place(browser, 3, 5, of="figure:nth-child(2) .picture", grid=(4, 6)))
        assert "Patch in row 1, column 2, block 1" in said(browser)
        assert "Patch in row 3, column 5, block 0" in said(browser, 1)
        assert_close(drawn(browser), attention_maps(model, x, query=(1, 2))[0], 0.01)
        assert_close(drawn(browser, 1, (4, 6)), attention_maps(other, x, -1, (3, 5))[0], 0.01)
        for key in "hhh":
            browser.press(key)
        assert "mean of the heads" in said(browser)  # it has no head 2
        assert "head 2" in said(browser, 1)
        click(browser, "[value=relevance]")
        assert said(browser, 1) == "This model has no classes."
        browser.press("i")
        browser.wait("document.body.dataset.ready === '0,1,model 1'")
        click(browser, "[value=attention]")
        expected = attention_maps(other, x, query=(3, 5), heads=None)[1, 2]
        assert_close(drawn(browser, 1, (4, 6)), expected, 0.01)
        browser.evaluate("choose({model: 1})")
        browser.wait("document.body.dataset.ready === '1,1,model 0'")
        assert not browser.errors


def test_two_images_on_a_phone(page, model, x):
    with Browser(**PHONE) as browser:
        browser.open(page)
        assert browser.evaluate("document.documentElement.scrollWidth") == 390
        small = "all('button').filter((b) => b.offsetParent && b.clientHeight < 33).length"
        assert browser.evaluate(small) == 0
        browser.tap(*place(browser, 1, 0))
        browser.wait("S.held")
        assert "Patch in row 1, column 0" in said(browser)
        browser.evaluate("choose({beside: 'image 1'})")
        browser.wait("document.body.dataset.ready === '0,0,image 1'")
        assert_close(drawn(browser), attention_maps(model, x, query=(1, 0))[0], 0.01)
        assert_close(drawn(browser, 1), attention_maps(model, x, query=(1, 0))[1], 0.01)
        assert browser.evaluate("document.querySelectorAll('#classes b').length") == 0
        assert not browser.errors


def contrast(browser, selector):
    """Of the text of an element to what lies behind it, as in WCAG 2.2."""
    colors = browser.evaluate(
        f"(() => {{ const e = document.querySelector('{selector}'), of = (x, what) =>"
        "getComputedStyle(x)[what].match(/[\\d.]+/g).map(Number); let b = e;"
        "while (of(b, 'backgroundColor')[3] === 0) b = b.parentElement;"
        "return [of(e, 'color'), of(b, 'backgroundColor')]; })()"
    )
    shares = np.array([color[:3] for color in colors]) / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    darker, lighter = np.sort(linear @ [0.2126, 0.7152, 0.0722])
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_nothing_overflows_and_all_is_legible(page, pair, size, dark, tmp_path):
    for path in (page, pair):
        with Browser(**size, dark=dark) as browser:
            browser.open(path)
            assert overflowing(browser) == []
            for selector in (".said", "footer p", "legend", ".panel > p", "button", "h1"):
                assert contrast(browser, selector) >= 4.5, selector
            paper = browser.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (int(paper[4:].split(",")[0]) < 128) == dark
            browser.screenshot(tmp_path / "page.png")
            assert not browser.errors
        assert (tmp_path / "page.png").stat().st_size > 10_000
