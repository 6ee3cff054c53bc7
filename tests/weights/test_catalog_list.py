"""What of the catalogue is listed, and how it is printed."""

import pytest

from keras_vit.weights.catalog import checkpoints, list_weights
from tests.support import refuses
from tests.weights.test_catalog import TI_16

pytestmark = pytest.mark.any_backend

ALL = checkpoints()
TASKS = {c.label_set.split("/")[1] for c in ALL if c.name.startswith("vtab/")}


def test_unknown_filters():
    refuses(r"Received: variant='B/17'.*'B/16'", checkpoints, "B/17")
    refuses(r"Received: family='gogle'.*'google'", checkpoints, family="gogle")
    assert checkpoints("SigLIP2-g-opt/16", family="google") == ()
    refuses(r"data='mnist'.*'imagenet-1k'", checkpoints, data="mnist")
    found = checkpoints("B/16", "google", data="imagenet-1k", image_size=384)
    assert found and all((c.finetuned_on, c.image_size) == ("imagenet-1k", 384) for c in found)


def test_list_of_a_variant(capsys):
    assert list_weights("ViT_Ti16", family="google") is None, "a notebook would print it again"
    printed = capsys.readouterr().out
    assert len(checkpoints("Ti/16", "google")) == 3
    lines = printed.splitlines()
    assert lines[0].split() == "name variant px classes trained on MiB top-1 licence".split()
    assert lines[2] == "google:"
    assert lines[3] == TI_16
    assert lines[4].split() == ["Ti/16", "224", "21843", "i21k", "37", "-", "Apache-2.0"]
    assert "i21k → i1k" in lines[8] and "~22  78.22  Apache-2.0" in lines[8]
    assert "howto-i21k-Ti/16" in printed
    assert "vtab" not in printed


def test_the_whole_list_is_readable(capsys):
    list_weights()
    lines = (printed := capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 120 and len(lines) < 1300
    for c in ALL:
        assert c.name in printed or c.name.startswith("vtab/")
    assert printed.count("vtab/BiT-M-R50x1-run*-*") == 1
    assert len(TASKS) == 19
    for task in TASKS:
        assert task in printed
