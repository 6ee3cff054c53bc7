"""Editors, `help` and type checkers see the arguments of the public functions."""

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import keras_vit
from keras_vit import builders
from tests.support import ROOT
from tests.typing import write

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize("name", write.FILES)
def test_what_is_written_from_the_tables_is_up_to_date(name):
    expected = write.formatted(write.FILES[name](), name)
    assert (ROOT / name).read_text() == expected, f"run {write.COMMAND}"


def test_help_shows_every_argument_of_a_builder_with_the_value_of_its_row():
    shown = inspect.signature(keras_vit.DINOv2_S14).parameters
    assert list(shown)[:4] == ["num_classes", "image_size", "weights", "include_top"]
    variant = vars(keras_vit.VARIANTS["DINOv2-S/14"])
    assert {name: shown[name].default for name in variant} == variant
    assert {"dropout", "variable_size", "name", "dtype"} <= set(shown)
    assert not {"variant", "architecture", "options"} & set(shown)
    made = {name for name in builders.__all__ if hasattr(getattr(builders, name), "__signature__")}
    assert made == {*builders.__all__} - {"build"}


def test_a_builder_takes_what_its_signature_shows():
    for builder, changes in (
        (keras_vit.ViT_Ti16, {"depth": 1, "width": 8, "num_heads": 2, "mlp_dim": 8}),
        (keras_vit.BiT_R50x1, {"blocks": (1,), "width": 0.5}),
    ):
        shown = inspect.signature(builder).parameters
        values = {name: p.default for name, p in shown.items()} | changes
        model = builder(**values)
        assert model.name == shown["name"].default == builder.__name__.lower()
        assert model.count_params() == builder(**changes).count_params()


def test_public_functions_have_type_hints():
    missing = []
    packages = [info.name for info in pkgutil.iter_modules(keras_vit.__path__) if info.ispkg]
    for name in {*packages, "builders"} - {"layers"}:
        module = importlib.import_module(f"keras_vit.{name}")
        for public in (getattr(module, name) for name in module.__all__):
            is_class = inspect.isclass(public)
            function = vars(public).get("__init__") if is_class else public
            if inspect.isfunction(function):
                signature = inspect.signature(function)
                arguments = [*signature.parameters.values()][is_class:]
                hints = [each.annotation for each in arguments]
                hints += [] if is_class else [signature.return_annotation]
                missing += [f"{name}.{public.__name__}"] * (inspect.Signature.empty in hints)
    assert not missing


@pytest.mark.slow
def test_a_type_checker_accepts_right_uses_and_refuses_wrong_ones():
    """`usage.py` marks the wrong ones, and an unused mark is an error; cold it takes 20 s."""
    checked = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
