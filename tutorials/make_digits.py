"""Makes the weights that come with the package as `weights="digits"`, with their card and images.

    KERAS_BACKEND=jax python tutorials/make_digits.py

It runs the main job as it is, rounds the weights to half precision, measures both on the test
images, which decide nothing, and writes keras_vit/weights/digits/. tests/oracles/digits/ keeps
what the float32 model computes. The row of the catalogue, whose size and accuracy are printed, is
written by hand.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
FOLDER = ROOT / "keras_vit" / "weights" / "digits"
LOGITS = ROOT / "tests" / "oracles" / "digits" / "logits.npz"
COMMAND = "python tutorials/make_digits.py"
MADE = """## How it was made

These weights come with the package: `keras_vit.from_checkpoint("digits")` and
`keras-vit predict digits` open them.

`KERAS_BACKEND={backend} {command}`, on {date} with {cores} cores and {version}, ran
`tutorials/train.py --seed {seed}`, which trains in float32, and rounded the weights to float16.
Of the {examples} test images, which decided nothing, the float32 model recognises {before} and
these weights {after}.

The images are scikit-learn's copy of a part of [Optical Recognition of Handwritten
Digits](https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits) by
E. Alpaydin and C. Kaynak (UCI, 1998). `0.png`, `1.png` and `2.png` are the first test images of
their classes.

"""


def main():
    add = (parser := argparse.ArgumentParser(description=__doc__.split("\n\n")[0])).add_argument
    add("--run", default="output", help="folder of the run, which is used if it is finished")
    add("--seed", type=int, default=0, help="of the run")
    args = parser.parse_args()
    train = [sys.executable, str(ROOT / "tutorials" / "train.py"), "--seed", str(args.seed)]
    subprocess.run([*train, "--output", args.run], check=True)

    import keras
    import numpy as np
    from PIL import Image

    import keras_vit
    from keras_vit import evaluation
    from keras_vit.job import Job

    run, digits = pathlib.Path(args.run), keras_vit.data.load("digits")
    model = keras.saving.load_model(run / "model.keras", compile=False)
    shutil.rmtree(FOLDER, ignore_errors=True)
    file = keras_vit.save_weights(model, FOLDER / "model.safetensors", dtype="float16")
    half = keras_vit.from_checkpoint(file)
    report = evaluation.evaluate(half, Job.read(run).load_test(), class_names=digits.class_names)
    before = json.loads((run / "evaluation.json").read_text())
    about = {"run": run, "report": report, "license": "apache-2.0", "name": "digits"}
    card = keras_vit.model_card(model, file=file, **about)
    made = MADE.format(
        backend=keras.backend.backend(),
        command=COMMAND,
        date=time.strftime("%d %B %Y"),
        cores=len(os.sched_getaffinity(0)),
        version=f"Keras {keras.__version__}",
        seed=args.seed,
        examples=report.examples,
        before=before["correct"]["1"],
        after=report.correct[1],
    )
    card.text = card.text.replace("## Limits", made + "## Limits")
    (FOLDER / "README.md").write_text(f"---\n{card.data.to_yaml()}\n---\n{card.text}")
    for digit in range(3):
        first = digits.test_images[np.flatnonzero(digits.test_labels == digit)[0], ..., 0]
        Image.fromarray(first).save(FOLDER / f"{digit}.png", optimize=True)
    LOGITS.parent.mkdir(parents=True, exist_ok=True)
    images = keras_vit.preprocess(digits.test_images[:64], model)
    np.savez(LOGITS, logits=keras.ops.convert_to_numpy(model(images)))
    print(report, f"{file.stat().st_size} bytes", f"top-1 {report.top1:.2%}", sep="\n")


if __name__ == "__main__":
    main()
