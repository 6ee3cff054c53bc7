"""Tables, shares and suggestions that people read."""

import html
import os
import re

import pytest

from keras_vit.checks import pair, positive_float, positive_int, rate
from keras_vit.text import (
    abridged,
    brief,
    code,
    csv_cell,
    markdown,
    nearest,
    percent,
    table,
    unknown,
    visible,
)

pytestmark = pytest.mark.any_backend


def test_a_table_is_aligned_plain_text():
    rows = [("[red]cat[/red]", 3, percent(0.5)), ("dog", 12_345, percent(1 / 3))]
    assert table(rows, ("class", "images", "accuracy")).splitlines() == [
        "class           images  accuracy",
        "[red]cat[/red]       3   50.00 %",
        "dog              12345   33.33 %",
    ]
    assert table([("a", "b"), ("long", "c")], left=2) == "a     b\nlong  c"
    assert len(table([("x" * 500, "y")])) == 503, "no line is broken"


def test_the_nearest_names():
    assert nearest("CIFAR1000", ("cifar10", "cifar100", "pets"))[0] == "cifar100"
    assert nearest("???", ("a", "b", "c", "d")) == ["a", "b", "c"]
    error = unknown("VTAB task", "dtt", ("dtd", "svhn"))
    assert str(error).startswith("Unknown VTAB task. Received: task='dtt'; the nearest are ['dtd']")


def test_text_that_a_terminal_shows_and_does_not_obey():
    assert visible("a\x1b[31mb\x07\x9b\u202e\r\n\tc") == r"a\x1b[31mb\x07\x9b\u202e\r\n\tc"
    assert visible(os.fsdecode(b"caf\xe9") + "\ud800") == r"caf\xe9\ud800"
    assert visible("\x00two\nlines\u2028", keep="\n") == "\\x00two\nlines\\u2028"
    for text in ("plain", "Größe 日本\u3000語 \u200d👨\u200d👩", "a\\b", ""):
        assert visible(text) == text
    assert visible(3) == "3" and table([("a\x1b", "b\nc")]) == r"a\x1b  b\nc"


def test_text_that_markdown_shows_as_it_is():
    text = "<b onclick=x>*i* _u_ a_b `c` | [l](javascript:x) ![i](y) http://e.org &lt; ~~s~~ \\"
    shown = markdown(text + "\n# title")
    assert "<" not in shown and "\n" not in shown and "http://" not in shown
    unescaped = re.sub(r"\\([!-/:-@\[-`{-~])", "", shown)  # without what is escaped
    assert not set("*`[]|~\\") & set(unescaped) and "a_b" in shown and "&amp;lt;" in shown
    read = html.unescape(re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", shown))
    assert read == text + " # title"
    assert code("a*b\x1b") == r"`a*b\x1b`" and code("`<i>") == r"\`&lt;i&gt;"


def test_a_formula_for_a_spreadsheet_is_text_and_other_cells_stay():
    for cell in ("=1+1", "+A", "-A1", "@sum", "\t=1", " =1", "\uff1d1", "\r=", "-"):
        assert csv_cell(cell) == "'" + visible(cell)
    for cell in ("-0.5", "+3", "-1e-3", -0.5, 3, None, "cat", "a=b", "n-1", ""):
        assert csv_cell(cell) == cell


def test_long_values_are_brief():
    assert brief("cat") == "'cat'" and abridged("x" * 4000) == "x" * 4000
    for value in ("x" * 100_000, list(range(10_000)), {"a": "b" * 5000}):
        text = brief(value)
        assert len(text) < 400 and text[:100] == repr(value)[:100] and text[-9:] == repr(value)[-9:]
        assert f"{len(repr(value)) - 300} characters" in text
    for check in (positive_int, positive_float, rate, pair):
        with pytest.raises(ValueError, match=r"Received: size=.*are left out") as error:
            check(["x" * 100_000] * 3, "size")
        assert len(str(error.value)) < 600
