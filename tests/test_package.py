"""The package as a whole: what importing it costs, and the rules that its files keep."""

import ast
import importlib
import inspect
import json
import pkgutil

import keras
import pytest

import keras_vit
from tests.support import ROOT, run_in_fresh_process

PACKAGE = ROOT / "keras_vit"
FILES = sorted(PACKAGE.rglob("*.py"))
PACKAGES = sorted(path.parent for path in FILES if path.name == "__init__.py")

IMPORT = """
import gc, json, sys, time
begin = time.process_time()
import keras
end = time.process_time()
gc.freeze()  # else a pass over all that Keras and its backend hold may fall into what follows
before, start = set(sys.modules), time.process_time()
import keras_vit
share = (time.process_time() - start) / (end - begin)
new = sorted({name.split(".")[0] for name in set(sys.modules) - before})
print(json.dumps({"share": share, "new": new}))
"""
HEAVY = {"jax", "keras_cv", "matplotlib", "sklearn", "tensorflow", "tensorflow_datasets", "torch"}


def test_the_import_adds_little_to_that_of_keras():
    """No second backend, nothing optional, and little computing; the best of three counts.

    Python keeps what it has compiled, as it does for users: the first run may have to compile.
    """
    for _ in range(3):
        printed = run_in_fresh_process(IMPORT, PYTHONDONTWRITEBYTECODE="")
        facts = json.loads(printed.splitlines()[-1])
        assert "keras_vit" in facts["new"]
        assert not HEAVY & set(facts["new"])
        if facts["share"] < 0.1:  # of the time that Keras and its backend take
            return
    assert facts["share"] < 0.1


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def public_objects():
    """Every name that a package of the library exports, with its owner."""
    for package in PACKAGES:
        module = importlib.import_module(module_name(package / "__init__.py"))
        for name in module.__all__:
            yield f"{module.__name__}.{name}", getattr(module, name)


def test_every_public_name_and_every_module_is_documented():
    undocumented = []
    for name, thing in public_objects():
        if not (inspect.ismodule(thing) or callable(thing)):
            continue  # a table of data
        # A class must have its own text, not one that it inherits from Keras.
        text = vars(thing).get("__doc__") if inspect.isclass(thing) else inspect.getdoc(thing)
        if not text or len(text) < 20:
            undocumented.append(name)
    assert not undocumented
    # Every module says what it is.
    assert [str(path) for path in FILES if not ast.get_docstring(ast.parse(path.read_text()))] == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_all_is_what_the_package_imports(package):
    tree = ast.parse((package / "__init__.py").read_text())
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    module = importlib.import_module(module_name(package / "__init__.py"))
    if package == PACKAGE:  # all of the builders, by their table
        imported = imported - {"builders", "*"} | set(keras_vit.builders.__all__)
    assert set(module.__all__) == imported | set(getattr(module, "_LATER", ()))
    assert len(module.__all__) == len(set(module.__all__))


FLOORS = {
    0: ("version", "workarounds", "writing", "text", "heads"),
    1: ("checks", "ends"),
    2: ("preprocessing", "outputs", "extensions", "families"),
    3: ("class_names", "supervision", "arguments", "variant"),
    4: ("variants", "layers"),
    5: ("models",),
    6: ("weights",),
    7: ("data",),
    8: ("inspection",),
    9: ("distribution",),
    10: ("training",),
    11: ("recipes",),
    12: ("evaluation", "exports"),
    14: ("results",),
    15: ("job",),
}
TOP_FLOOR = 13


def floor_of(module):
    parts = module.split(".")
    if len(parts) == 1:
        return TOP_FLOOR + 1
    return next((floor for floor, names in FLOORS.items() if parts[1] in names), TOP_FLOOR)


def imports_of(path):
    """Names of the modules of this library that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_no_import_climbs_a_floor(path):
    """variant <- layers <- models <- weights <- data <- distribution <- training <- all else."""
    here = module_name(path)
    for name in imports_of(path):
        if name.split(".")[0] == "keras_vit":
            same_package = name.split(".")[1:2] == here.split(".")[1:2]
            assert floor_of(name) < floor_of(here) or same_package, f"{here} imports {name}"


def backend_of(module):
    """The one backend under which a module is imported, by its name; None for all of them."""
    words = module.rpartition(".")[2].split("_")
    return next((word for word in words if word in ("jax", "tensorflow", "torch")), None)


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_no_second_backend_at_the_top_of_a_file(path):
    """A heavy or optional package is imported where it is used, and private Keras never."""
    tree = ast.parse(path.read_text())
    at_top = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    for node in at_top:
        names = [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        # What only one backend has is imported under that backend alone.
        own = {backend_of(module_name(path))}
        assert not (HEAVY - own) & {name.split(".")[0] for name in names}
    assert not [name for name in imports_of(path) if name.startswith("keras.src")]


def test_the_layers_of_the_paper_know_no_extension():
    """`layers/__init__.py`, which lists the public names of both, is the one file that may."""
    for path in (ROOT / "keras_vit" / "layers").glob("*.py"):
        if path.name != "__init__.py":
            found = [name for name in imports_of(path) if "layers.extensions" in name]
            assert not found, f"{path.name} imports {found}"


def test_no_file_has_two_subjects():
    """A file of more than 300 lines has; it is split."""
    folders = ("keras_vit", "keras_vit_cli", "tutorials", "tests")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    long = {str(path): n for path in files if (n := len(path.read_text().splitlines())) > 300}
    assert not long


def test_every_class_of_keras_is_registered():
    """So that a saved model opens without custom objects."""
    found = []
    for info in pkgutil.walk_packages(keras_vit.__path__, "keras_vit."):
        if backend_of(info.name) not in (None, keras.backend.backend()):
            continue
        module = importlib.import_module(info.name)
        for name, thing in vars(module).items():
            if not inspect.isclass(thing) or thing.__module__ != info.name:
                continue
            if issubclass(thing, (keras.layers.Layer, keras.optimizers.Optimizer)):
                found.append(name)
                registered = keras.saving.get_registered_name(thing)
                # Both versions of a ResNet's parts have one name in their modules, not in files.
                assert registered.removesuffix("V2") == f"keras_vit>{name}"
                assert keras.saving.get_registered_object(registered) is thing
    assert {"VisionTransformer", "TransformerBlock"} <= set(found)


HIDE = """
import importlib.machinery, sys

class Hidden(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, *arguments):
        return None if name in {hidden} else super().find_spec(name, *arguments)

sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Hidden
import keras_vit
"""


@pytest.mark.any_backend
def test_a_backend_that_is_not_installed_is_named_with_the_one_that_is():
    hide = HIDE.format(hidden=("tensorflow", "torch"))
    said = run_in_fresh_process(hide, backend="tensorflow", check=False).splitlines()[-1]
    assert "computes with tensorflow here" in said and "KERAS_BACKEND=jax" in said
    none = HIDE.format(hidden=("tensorflow", "torch", "jax"))
    assert "no backend" in run_in_fresh_process(none, backend="torch", check=False)
