"""Numbers on the command line: which it takes, and that its errors name the flag."""

import pytest
from PIL import Image

from keras_vit_cli import main

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train --steps 0", "argument --steps: takes a whole number from 1"),
        ("train --steps 1e3", "--steps: takes a whole number from 1 to 2**32 - 1. Received: '1e3'"),
        ("train --lora 0", "argument --lora: takes a whole number from 1"),
        ("train --epochs 0", "argument --epochs: takes a number above 0"),
        ("train --epochs inf", "argument --epochs: takes a number above 0 and below 1e9"),
        ("train --epochs 1e300", "below 1e9. Received: '1e300'"),
        ("train --epochs nan", "argument --epochs: takes a number above 0"),
        ("train --batch-size 0", "argument --batch-size: takes"),
        ("train --accumulate 0", "argument --accumulate: takes"),
        ("train --image-size 64 0", "argument --image-size: takes"),
        ("train --learning-rate inf", "argument --learning-rate: takes a number above 0"),
        ("train --weight-decay nan", "argument --weight-decay: takes a number of at least 0"),
        ("train --warmup 1", "argument --warmup: takes a share in [0, 1). Received: '1'"),
        ("train --seed -1", "argument --seed: takes a whole number from 0"),
        ("predict m --top 0", "argument --top: takes"),
        ("predict m --batch-size -2", "argument --batch-size: takes"),
        ("evaluate m --top 1 0", "argument --top: takes"),
        ("evaluate m --batch-size 0", "argument --batch-size: takes"),
        ("explore m --top 0", "argument --top: takes"),
        ("explore m --megabytes nan", "argument --megabytes: takes a number above 0"),
        ("list --image-size 0", "argument --image-size: takes"),
        ("list --max-size 0", "argument --max-size: takes"),
        ("list --min-accuracy nan", "argument --min-accuracy: takes"),
    ],
)
def test_numbers_out_of_range(capsys, arguments, message):
    """Zero is a number that was given, and the flag is named before anything is read."""
    with pytest.raises(SystemExit) as end:
        main(arguments.split())
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_training_says_what_the_library_says(capsys, tmp_path):
    for place in ("train/cat", "train/dog", "test/cat", "test/dog"):
        (tmp_path / "data" / place).mkdir(parents=True)
        Image.new("RGB", (30, 20)).save(tmp_path / "data" / place / "a.png")
    data = ["train", "--recipe", "own_images", "--dataset", f"{tmp_path}/data"]
    data += ["-o", f"{tmp_path}/output"]
    code, error = main([*data, "--batch-size", "50", "--epochs", "1"]), capsys.readouterr().err
    assert code == 1 and "A batch for training must not be larger than the split" in error
    assert "batch_size=50, and 2 examples" in error
    code, error = main([*data, "--steps", str(2**31)]), capsys.readouterr().err
    assert code == 1 and "steps must be at most 2,147,483,647" in error
