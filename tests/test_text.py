"""Tables, shares and suggestions that people read."""

import pytest

from keras_vit.text import nearest, percent, table, unknown

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
