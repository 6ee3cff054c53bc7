"""The site of the documentation has every page, and every public name."""

import collections
import functools
import html
import importlib
import inspect
import itertools
import re
import subprocess
import sys

import pytest

import keras_vit
from keras_vit import recipes
from keras_vit_cli import parser
from tests.support import ROOT
from tests.test_package import PACKAGES, module_name

griffe = pytest.importorskip("griffe")
pytestmark = pytest.mark.any_backend

PAGES = "\n".join(page.read_text("utf-8") for page in (ROOT / "docs" / "api").glob("*.md"))


@pytest.fixture(scope="module")
def package():
    """The package as the site reads it: its files, not executed."""
    names = griffe.load_extensions(str(ROOT / "docs" / "hooks.py") + ":Names")
    return griffe.load("keras_vit", search_paths=[ROOT], extensions=names)


@pytest.fixture(scope="module")
def shown(package):
    """Where it is defined -> what a page shows: a name, or all public names of a package."""
    found = {}
    for path in re.findall(r"^::: keras_vit\.(\S+)$", PAGES, re.M):
        thing = package[path]
        things = [thing[name] for name in thing.exports] if thing.is_module else [thing]
        found |= {each.canonical_path: each for each in (thing, *things)}
    return found


def test_every_public_name_is_on_a_page_that_says_what_it_is(package, shown):
    assert [path for path, thing in shown.items() if not thing.has_docstring] == []
    missing = []
    for folder in PACKAGES:
        module = importlib.import_module(module_name(folder / "__init__.py"))
        for name in set(module.__all__) - set(keras_vit.builders.__all__):
            path = f"{module.__name__}.{name}"
            thing = package[path.removeprefix("keras_vit.")]
            is_module = inspect.ismodule(getattr(module, name))
            if thing.canonical_path not in shown or thing.is_module != is_module:
                missing.append(path)
    assert missing == []
    assert "keras_vit.builders.build" in shown
    assert [name for name in keras_vit.builders.__all__[1:] if f"| `{name}` |" not in PAGES] == []


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """What a build of the site would write, each with its destination."""
    mkdocs = pytest.importorskip("mkdocs.config")
    site = str(tmp_path_factory.mktemp("site"))
    config = mkdocs.load_config(str(ROOT / "mkdocs.yml"), site_dir=site)
    config.plugins.on_startup(command="build", dirty=False)
    config = config.plugins.on_config(config)
    files = importlib.import_module("mkdocs.structure.files").get_files(config)
    return config.plugins.on_files(files, config=config)


def test_no_two_files_of_the_site_share_a_destination(files):
    """Nor are they told apart by capitals alone, which some file systems do not know."""
    places = collections.defaultdict(list)
    for file in files:
        places[file.dest_uri.casefold()].append(file.src_uri)
    assert [sources for sources in places.values() if len(sources) > 1] == []


def test_every_page_of_the_docs_and_every_listing_has_its_place(files):
    places = {file.src_uri: file.dest_uri for file in files}
    pages = [page.relative_to(ROOT) for page in (ROOT / "docs").rglob("*.md")]
    expected = {str(page): str(page.relative_to("docs").with_suffix(".html")) for page in pages}
    assert expected.items() <= places.items()
    listings = [file for file in files.documentation_pages() if file.src_uri.endswith(".py")]
    assert "studies/positions.py" in [file.src_uri for file in listings]
    assert all(file.dest_uri.startswith("sources/") for file in listings)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built with no more than the extra `docs` brings: each page as its HTML."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("built")
    missing = ("keras", "keras_vit", "jax", "scipy", "tensorflow", "torch", "matplotlib", "sklearn")
    code = f"import sys; sys.modules |= dict.fromkeys({missing!r}); "
    code += "import mkdocs.__main__ as main; "
    command = [sys.executable, "-c", f"{code}main.cli()", "build", "--strict", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = folder.rglob("*.html")
    return {str(page.relative_to(folder)): page.read_text("utf-8") for page in pages}


def test_each_study_shows_its_verdict(site):
    studies = [page.stem for page in (ROOT / "docs" / "studies").glob("*.md")]
    pages = {name: site[f"studies/{name}.html"] for name in studies}
    results = {path.stem for path in (ROOT / "studies" / "results").glob("*.png")}
    assert [n for n in results & pages.keys() if "Verdict" not in pages[n]] == []


def test_each_picture_has_a_caption(site):
    """But for those in the cells of a table, which says what they are."""
    wrong = []
    for name, page in site.items():
        page = re.sub(r"(?s)<td.*?</td>", "", page)
        figures = re.findall(r'<figure><img alt="(.+?)".*?/><figcaption.*?>(.+?)</', page)
        wrong += [name] * (len(figures) != page.count("<img "))
        told = [[html.unescape(text) for text in figure] for figure in figures]
        wrong += [f"{name}: {caption}" for text, caption in told if text != caption]
    assert wrong == []


def test_each_cell_of_a_table_has_the_head_of_its_column(site):
    """A phone shows a row as a card, with the heads beside the values."""
    table = re.search(r"(?s)<table>.*?</table>", site["readme.html"])[0]
    heads = re.findall(r"<th>(.*?)</th>", table)
    assert re.findall(r'<td data-head="(.*?)"', table)[: len(heads)] == heads


READ = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
READ += [ROOT / "tutorials" / "README.md"]
WRITTEN = [*READ, *sorted((ROOT / "tutorials").glob("0*.py")), ROOT / "CONTRIBUTING.md"]


def spans(text):
    """Each piece of inline code of a page."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


def prose(page):
    """The words of a page, or of the text of a notebook's script: no code, no place of a link."""
    text = page.read_text("utf-8")
    if page.suffix == ".py":
        cells = re.findall(r"(?m)^# %% \[markdown\]\n((?:#.*\n)+)", text)
        text = re.sub(r"(?m)^# ?", "", "\n".join(cells))
    text = re.sub(r"(?ms)^```.*?^```|<!--.*?-->|`[^`]*`|\]\([^)]*\)|^:::.*?(?=^\S|\Z)", " ", text)
    return re.sub(r"\S+\.(?:md|csv|py)\b|https?://\S+", " ", text)


# What American English spells in another way, but for names that APIs give to things.
AMERICAN = re.compile(
    r"\b(?:(?!(?:re|over)?siz|priz|seiz|optimizer|tokenizer)[^\W_]+iz(?:e[drs]?|ers?|ing|ations?)"
    r"|\w+lyz(?:e[drs]?|ing)|(?:behavi|col|fav|neighb)or\w*|gray\w*|centers?|centered"
    r"|(?:fib|met)ers?|(?:ana|cata|dia)logs?|defense|license|artifacts?|fulfills?|judgments?"
    r"|(?:cance|labe|mode|signa|tota|trave)l(?:ed|ing))\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_spells_as_the_british_do(page):
    assert [found[0] for found in AMERICAN.finditer(prose(page))] == []


def commands(text):
    """Each call of `keras-vit` on a page, in a block or in a line, as a list of words."""
    text = re.sub(r"\\\n\s*", " ", text)
    lines = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.partition("  #")[0] for block in lines for line in block.splitlines()]
    for line in (*lines, *spans(text)):
        for call in re.findall(r"(?:^|[ /;(])(?:keras-vit|tutorials/train\.py) ([^|;&)]*)", line):
            yield ["train", *call.split()] if "train.py" in line else call.split()


def options():
    """The flags of each command."""
    commands = parser()._subparsers._group_actions[0].choices
    return {name: {*command._option_string_actions} for name, command in commands.items()}


@pytest.mark.parametrize("page", READ, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_names_on_a_page_exist(page):
    """Those of builders, of what a package exports, of commands and their flags, of recipes."""
    text, wrong = page.read_text("utf-8"), []
    families = {name.partition("_")[0] for name in keras_vit.builders.__all__} - {"build"}
    for span in spans(text):
        if re.fullmatch(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)+", span) and span.split("_")[0] in families:
            wrong += [span] * (span not in keras_vit.builders.__all__)
        packages = "|".join(path.name for path in PACKAGES if path.name != "keras_vit")
        dotted = r"([A-Za-z]\w*(?:\.[A-Za-z]\w*)*)"
        name = re.match(rf"(?:keras_vit\.|(?=(?:{packages})\.)){dotted}", span)
        is_file = span.endswith((".py", ".md", ".csv", ".json", ".npz"))
        if name and not is_file and not name[1].isupper():  # that is a place for a name
            try:
                functools.reduce(getattr, name[1].split("."), keras_vit)
            except AttributeError:
                wrong.append(span)
    known = options()
    for command, *words in commands(text):
        if command not in known:
            wrong += [command] * command.isalpha() * command.islower()
            continue
        flags = {word.partition("=")[0] for word in words if word.startswith("-")}
        wrong += [f"{command} {flag}" for flag in flags - known[command]]
        for flag, value in itertools.pairwise(words):
            if flag == "--recipe" and value.strip(".") and not value.isupper():
                recipes.get(value)
    for name in re.findall(r"recipes\.get\(\"(.*?)\"\)", text):
        recipes.get(name)
    assert wrong == []
