"""The guides run and print what they show, and the links of all docs lead somewhere."""

import re

import pytest

import keras_vit
from keras_vit.data import augment
from keras_vit.weights import readers
from tests.guides import FOLDER, agrees, blocks, environment_with_commands, of_backend, run
from tests.recipes.snippets import mistakes
from tests.support import BACKEND, ROOT, every_backend, slow_unless_torch

pytestmark = pytest.mark.any_backend

PAGES = sorted(FOLDER.glob("*.md"))
LINKED = [*ROOT.glob("*.md"), *(ROOT / "tutorials").glob("*.md"), *(ROOT / "docs").rglob("*.md")]
by_name = {"ids": lambda page: page.name}


def a_small_checkpoint_of_digits(folder):
    """`start.npz` of fine_tune.md, which its commands would make."""
    model = keras_vit.VisionTransformer(
        image_size=16, patch_size=4, channels=1, width=64, depth=3, num_heads=4, num_classes=6,
        pool="mean", class_token=False,
    )  # fmt: skip
    keras_vit.save_weights(model, folder / "start.npz")


def a_small_vit_s14(folder):
    """`vit_s14.npz` of two pages in a model of width 12, with random weights."""
    model = keras_vit.VisionTransformer(
        image_size=224, patch_size=14, width=12, depth=12, num_heads=6, num_classes=0
    )
    keras_vit.save_weights(model, folder / "vit_s14.npz")


# What a page has from a command or a download, as the fast test makes it.
STAND_INS = {
    "fine_tune.md": a_small_checkpoint_of_digits,
    "inspect.md": a_small_vit_s14,
    "segmentation.md": a_small_vit_s14,
}
# Sizes that take minutes on a page, and those of the fast test.
SMALLER = {
    "inspect.md": {"448": "56", "32, 32": "4, 4"},
    "segmentation.md": {"count=32": "count=3", "count=16": "count=2", "epochs=30": "epochs=1"},
}


@pytest.fixture(autouse=True)
def tidy(tmp_path, monkeypatch):
    """A page works in a folder of its own, and what it adds to the library is taken back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(readers, "FAMILIES", readers.FAMILIES)
    known = set(augment.AUGMENTATIONS)
    yield
    for name in set(augment.AUGMENTATIONS) - known:
        del augment.AUGMENTATIONS[name]


def follow(page, chosen, tolerance, environment=None, smaller=None, part=None):
    names, text = {}, part or page.read_text()
    for old, new in (smaller or {}).items():
        assert old in text
        text = text.replace(old, new)
    for block in filter(chosen, blocks(text)):
        printed = run(block, names, environment)
        if block.shown is not None:
            assert agrees(block.shown, printed, tolerance), f"{block.code}\nprinted:\n{printed}"


def is_fast(block):
    return block.language == "python" and block.mark in ("", BACKEND)


@slow_unless_torch
@pytest.mark.parametrize("page", PAGES, **by_name)
def test_the_python_of_a_guide_runs(page, tmp_path):
    if page.name in STAND_INS:
        STAND_INS[page.name](tmp_path)
    follow(page, is_fast, 0.01, smaller=SMALLER.get(page.name))


@every_backend
@pytest.mark.parametrize("page", [p for p in PAGES if "<!-- jax -->" in p.read_text()], **by_name)
def test_what_a_guide_has_for_one_backend_runs_there(page):
    part = of_backend(page.read_text(), BACKEND)
    assert {block.mark for block in blocks(part)} >= {"", BACKEND}
    follow(page, is_fast, 0.01, part=part)


@pytest.mark.slow
@pytest.mark.skipif(BACKEND != "torch", reason="the pages show what PyTorch prints")
@pytest.mark.parametrize("page", PAGES, **by_name)
def test_a_guide_followed_from_top_to_bottom(page, tmp_path):
    if STAND_INS.get(page.name) is a_small_vit_s14:
        a_small_vit_s14(tmp_path)  # 90 MB otherwise
    environment = environment_with_commands(tmp_path / ".bin")
    follow(page, lambda block: block.mark in ("", "slow", BACKEND), 0.2, environment)


@pytest.mark.parametrize("page", PAGES, **by_name)
def test_what_is_not_run_uses_names_that_exist(page):
    python = [block.code for block in blocks(page.read_text()) if block.language == "python"]
    assert [mistake for code in python for mistake in mistakes(code)] == []


def test_the_table_of_the_paper_names_what_is_in_the_files():
    rows = (FOLDER / "paper_and_code.md").read_text().splitlines()
    wrong, count = [], 0
    for row in rows:
        files = re.findall(r"\]\(\.\./\.\./([\w/]+\.py)\)", row)
        if row.startswith("|") and files:
            source = "\n".join((ROOT / file).read_text() for file in files)
            looked_at = row.split("|")[3]
            for name in re.findall(r"`([\w.]+)", looked_at):
                count += 1
                wrong += [(name, files)] * (name.split(".")[-1] not in source)
    assert not wrong and count > 40


def anchors(page):
    """The names that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    names = {}
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        names[name] = names.get(name, -1) + 1
    return {name if i == 0 else f"{name}-{i}" for name, n in names.items() for i in range(n + 1)}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "`code`", text)
    broken = []
    for link in re.findall(r"\]\((?!\w+:)([^)\s]+)\)|src=\"(?!\w+:)([^\"]+)\"", text):
        file, _, anchor = "".join(link).partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target)
        ):
            broken.append("".join(link))
    assert broken == []


def test_pictures_of_the_guides_are_small_and_shown():
    shown = "\n".join(page.read_text() for page in PAGES)
    for picture in (ROOT / "docs" / "images").glob("guide_*"):
        assert picture.stat().st_size <= 150_000 and f"images/{picture.name}" in shown
