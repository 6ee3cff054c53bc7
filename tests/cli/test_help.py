"""What answers before anything is opened: help, and the catalogue of weights."""

import json
import re

import pytest

from keras_vit_cli import COMMANDS, main
from tests.cli.test_cli import run
from tests.support import run_in_fresh_process

pytestmark = pytest.mark.any_backend


def test_no_command_is_a_question_for_help(capsys):
    code, out, error = run(capsys)
    assert (code, error) == (0, "") and out.startswith("usage: keras-vit") and "predict" in out


CATALOGUE = """
import sys
from keras_vit_cli import main
for arguments in (["list", "--family", "dinov2"], ["info", "digits"], ["list", "--family", "x"]):
    print(main(arguments), {"keras", "torch", "jax", "tensorflow", "keras_vit"} & set(sys.modules))
"""


def test_the_catalogue_needs_no_backend():
    printed = run_in_fresh_process(CATALOGUE, KERAS_BACKEND="none")
    assert printed.count("0 set()\n") == 2 and printed.count("1 set()\n") == 1
    assert "facebook/dinov2-small" in printed and "mini/4" in printed


@pytest.mark.parametrize(
    ("family", "variants"),
    [
        ("dino", {"DINO", "DINOv2", "DINOv3"}),
        ("DINOv2", {"DINOv2"}),
        ("siglip2", {"SigLIP2"}),
        ("I-JEPA", {"IJEPA"}),
        ("mae", {"MAE"}),
        ("bit", {"BiT"}),
        ("keras_vit", {"mini/4"}),
    ],
)
def test_families_are_called_as_users_call_them(capsys, family, variants):
    rows = json.loads(run(capsys, "list", "--family", family, "--json")[1])
    assert {row["variant"].split("-")[0] for row in rows} == variants
    code, _, error = run(capsys, "list", "--family", family + "nothing")
    assert code == 1 and "Unknown family" in error


def test_help_says_what_may_be_left_out(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    for command in COMMANDS:
        with pytest.raises(SystemExit) as end:
            main([command, "--help"])
        text = capsys.readouterr().out
        assert end.value.code == 0 and "What stands in [brackets] may be left out" in text
        for line in re.findall(r"^  (?=--)?-.*(?:\n {10,}.*)?", text, re.MULTILINE):
            takes_a_value = re.match(r"  (-\w.*?, )?--[\w-]+ [A-Z{]", line)
            assert not takes_a_value or re.search(r"default: |optional", line), line
