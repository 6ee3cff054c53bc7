"""What flags take, that their errors name them, and that none is lost beside another."""

import pytest
from PIL import Image

from keras_vit_cli import main, parser
from keras_vit_cli.models import read_names
from keras_vit_cli.train_command import make_job
from tests.support import refuses

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
        ("train --epochs many", "argument --epochs: takes a number above 0"),
        ("train --epochs 1 --steps 2", "give --epochs or --steps. Received: 1.0 and 2"),
        ("train --channels 2", "argument --channels: invalid choice"),
        ("train --recipe own_images", "--recipe own_images needs --dataset"),
        ("train --set mixup", "--set: takes NAME=VALUE"),
        ("train --batch-size 0", "argument --batch-size: takes"),
        ("train --accumulate 0", "argument --accumulate: takes"),
        ("train --image-size 64 0", "argument --image-size: takes"),
        ("train --learning-rate inf", "argument --learning-rate: takes a number above 0"),
        ("train --weight-decay nan", "argument --weight-decay: takes a number of at least 0"),
        ("train --warmup 1", "argument --warmup: takes a share in [0, 1). Received: '1'"),
        ("train --seed -1", "argument --seed: takes a whole number from 0"),
        ("train --save-every nans", "argument --save-every: takes a number of updates"),
        ("train --save-every=-5", "argument --save-every: takes a number of updates"),
        ("train --save-every 0", "argument --save-every: takes a whole number from 1"),
        ("train --save-every ²", "argument --save-every: takes a number of updates"),
        ("train --set ema=0.5 ema=0.9", "--set: takes each name once. Received: ema=0.5 and ema"),
        ("convert m m.npz --set a=1 --set a=2", "once. Received: a=1 and a=2"),
        ("train --image-size 32 --set image_size=64", "give --image-size or --set image_size. Rec"),
        ("train --learning-rate 0.1 --set learning_rate=0.2", "Received: 0.1 and 0.2"),
        ("train --epochs 3 --set batch_size=16", "give --epochs or --set batch_size"),
        ("train --steps 9 --set steps=8", "give --steps or --set steps. Received: 9 and 8"),
        ("train --warmup 0.1 --set steps=8", "give --warmup or --set steps"),
        ("train --variant B/16 --set variant=S/16", "give --variant or --set variant"),
        ("train --set momentum=0.5", "with optimizer='sgdm' only. Received: momentum and optim"),
        ("train --set end_learning_rate=0.1", "end_learning_rate has an effect with schedule='l"),
        ("train --set boundaries=(9,)", "boundaries has an effect with schedule='stairs' only"),
        ("train --set num_classes=3", "num_classes is what the data has"),
        ("train --set examples=10", "examples is what the data has; give other data instead"),
        ("train --set dataset=cifar10", "dataset is what the data has; give --dataset instead"),
        ("train --set train_split=train[:50%]", "give --split instead"),
        ("train --evaluate run --dataset d --steps 3", "Received: dataset, steps beside it"),
        ("explore digits 0.png --compare digits", "--compare: takes another model"),
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


def test_flags_that_are_given_again_add_to_what_was_given():
    read = parser().parse_args
    arguments = "train --set mixup=0.2 --freeze a --set ema=0.99 clip_norm=None --freeze b c"
    args = read(arguments.split())
    assert args.set == {"mixup": 0.2, "ema": 0.99, "clip_norm": None}
    assert args.freeze == ["a", "b", "c"] and make_job(args).recipe.ema == 0.99
    assert read(["train"]).set == {} == read(["convert", "a", "b"]).set
    assert read("convert a b --set x=1 --set y=2".split()).set == {"x": 1, "y": 2}
    assert read("evaluate m --top 1 --top 5 7".split()).top == [1, 5, 7]
    assert read("explore m --blocks 0 --blocks 1".split()).blocks == [0, 1]
    assert read("export m m.onnx --images a --images b".split()).images == ["a", "b"]


def test_epochs_are_those_of_the_images_that_are_trained_on():
    job = make_job(parser().parse_args(["train", "--split", "train[:50%]", "--epochs", "10"]))
    assert job.recipe.examples == 719 and job.recipe.steps == 10 * (719 // job.recipe.batch_size)


def test_names_keep_their_places(tmp_path):
    file = tmp_path / "names.txt"
    file.write_bytes("\N{BYTE ORDER MARK}cat\r\ngrey wolf \r\ndog\r\n\r\n\n".encode())
    assert read_names(file) == ["cat", "grey wolf", "dog"]
    for text, line in (("cat\n \ndog", 2), ("\ncat", 1), ("", 1)):
        file.write_text(text)
        refuses(f"Received: line {line} without one", read_names, file)
    for encoding in ("utf-16", "utf-16-le", "latin-1"):  # as Windows saves text
        file.write_bytes("chat\nbétail\nâne".encode(encoding))
        refuses(r"names\.txt must be saved as text in UTF-8\. Received: ", read_names, file)
