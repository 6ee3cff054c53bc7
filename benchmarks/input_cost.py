"""What real data cost: steps fed by the input pipeline against steps on one fixed batch.

    KERAS_BACKEND=jax python benchmarks/input_cost.py --model S16 --tasks train infer --batch 8

The data are JPEG files, of 500 x 375 pixels unless `--jpeg 224x224` says otherwise, cut from two
photographs, in a temporary folder.
`keras_vit.data.pipeline` decodes them, takes an inception crop of 224 pixels, flips half of them
(in inference: a central crop) and makes batches, on threads beside the model. Turns with the
pipeline alternate with turns on a fixed batch, which have a process of their own: what a pipeline
does to the whole process, its memory for one, is part of its cost. The first steps of each turn
are not timed: they use up what the pipeline had prepared while it was not being waited for.
"""

import argparse
import itertools
import multiprocessing
import os
import sys
import tempfile
import time
import types

import tables
from input import make_images
from settings import get_architecture


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="S16")
    parser.add_argument("--tasks", nargs="+", default=["train", "infer"])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--depth", type=int)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--jit", default="auto", choices=("auto", "true", "false"))
    parser.add_argument("--workers", type=int, default=0, help="processes of the pipeline")
    parser.add_argument("--threads", type=int, help="of the pipeline; default: one per core")
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--jpeg", type=pixels, default="500x375", metavar="WIDTHxHEIGHT")
    parser.add_argument("--turns", type=int, default=6, help="of each kind")
    parser.add_argument("--steps", type=int, default=8, help="timed in a turn")
    parser.add_argument("--untimed", type=int, default=4, help="at the beginning of a turn")
    tables.add_outputs(parser)
    args = parser.parse_args(arguments)
    try:
        args.architecture = get_architecture(args.model, args.image_size, args.depth)
    except ValueError as error:
        parser.error(str(error))
    if unknown := set(args.tasks) - {"train", "infer"}:
        parser.error(f"--tasks are train and infer. Received: {sorted(unknown)}.")
    if args.images < 2 * args.batch:
        parser.error(f"--images must be at least two batches. Received: {args.images}.")
    return args


def pixels(text):
    """`"500x375"` as (500, 375)."""
    width, times, height = text.partition("x")
    if not (times and width.isdecimal() and height.isdecimal() and int(width) * int(height)):
        raise argparse.ArgumentTypeError(f"must be like 500x375. Received: {text}")
    return int(width), int(height)


def make_model(args):
    """A model for the two classes of the photographs."""
    import keras

    import keras_vit

    keras.config.set_dtype_policy("mixed_bfloat16" if args.dtype == "bfloat16" else "float32")
    a = args.architecture
    model = keras_vit.VisionTransformer(
        f"{a.name.rstrip('0123456789')}/{a.patch_size}",
        depth=a.depth,
        image_size=a.image_size,
        num_classes=2,
    )
    model.compile(
        keras_vit.training.AdamW(1e-4, weight_decay=0.01),
        keras.losses.CategoricalCrossentropy(from_logits=True),
        jit_compile={"auto": "auto", "true": True, "false": False}[args.jit],
    )
    return model


def endless_batches(folder, args, task):
    """(images, labels) of the pipeline, epoch after epoch."""
    from keras_vit import data

    size = (args.image_size, args.image_size)
    recipe = types.SimpleNamespace(
        batch_size=args.batch,
        seed=0,
        train=data.Transform(size, crop="inception", flip=True),
        eval=data.Transform(
            size, resize_small=args.image_size * 8 // 7, crop="resize_small_center"
        ),
        mixup=0.0,
        cutmix=0.0,
    )
    training = task == "train"
    pipeline = data.pipeline(
        folder, recipe, "train", training=training, threads=args.threads, workers=args.workers
    )
    while True:
        for batch in pipeline:
            if len(batch[0]) == args.batch:  # the last one of a pass may be smaller
                yield batch


def make_step(args, task):
    """A function of a batch: one step of a new model."""
    model = make_model(args)
    if task == "train":
        return lambda batch: model.train_on_batch(*batch)
    return lambda batch: model.predict_on_batch(batch[0])


def measure(args, task, folder, say):
    """Milliseconds per step of each turn, `"fixed"` and `"real"`, and what real data cost."""
    real, step = endless_batches(folder, args, task), make_step(args, task)
    fixed = next(real)
    step(fixed)
    turns = {"fixed": [], "real": []}
    with Elsewhere(args, task, fixed) as elsewhere:
        take = {"fixed": elsewhere.turn, "real": lambda: _turn(step, real, args)}
        for turn in range(args.turns):
            for kind in ("fixed", "real") if turn % 2 == 0 else ("real", "fixed"):
                turns[kind].append(take[kind]())
            say(f"{task}: turn {turn + 1} of {args.turns} done")
    costs = [100 * (r / f - 1) for r, f in zip(turns["real"], turns["fixed"])]
    return {"turns": turns, "cost_percent": tables.summary(costs)}


class Elsewhere:
    """A process with a model of its own, which takes turns on one batch and opens no pipeline."""

    def __init__(self, args, task, batch):
        context = multiprocessing.get_context("spawn")
        self._pipe, its = context.Pipe()
        self._process = context.Process(target=_serve, args=(args, task, batch, its), daemon=True)
        self._process.start()
        its.close()
        self._pipe.recv()  # its first step is done

    def turn(self):
        """Milliseconds per step."""
        self._pipe.send(True)
        return self._pipe.recv()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._pipe.close()
        self._process.join()


def _serve(args, task, batch, pipe):
    step = make_step(args, task)
    step(batch)
    pipe.send(True)
    while True:
        try:
            pipe.recv()
        except EOFError:
            return
        pipe.send(_turn(step, itertools.repeat(batch), args))


def _turn(step, batches, args):
    for batch in itertools.islice(batches, args.untimed):
        step(batch)
    start = time.perf_counter()
    for batch in itertools.islice(batches, args.steps):
        step(batch)
    return (time.perf_counter() - start) * 1e3 / args.steps


def markdown(found, args, described, versions):
    columns = ("task", "ms, fixed batch", "ms, real data", "cost: median (quartiles)", "images/s")
    rows = []
    for task, figures in found.items():
        ms = {kind: tables.summary(each)["median"] for kind, each in figures["turns"].items()}
        cost = figures["cost_percent"]
        spread = f"{cost['median']:+.1f}% ({cost['low']:+.1f} to {cost['high']:+.1f})"
        rate = f"{args.batch / ms['real'] * 1e3:.1f}"
        rows.append((task, f"{ms['fixed']:.1f}", f"{ms['real']:.1f}", spread, rate))
    title = f"### Cost of real data: {args.architecture.name}, {args.image_size} px, "
    title += f"batch {args.batch}, {args.dtype}, JPEGs of {args.jpeg[0]} x {args.jpeg[1]}"
    line = tables.machine_line(described, versions)
    return "\n\n".join([title, tables.table(columns, rows), line])


def main():
    args, described = parse(), tables.describe()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    import keras

    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    with tempfile.TemporaryDirectory() as folder:
        make_images(folder, args.images, args.jpeg)
        found = {task: measure(args, task, folder, say) for task in args.tasks}
    backend = sys.modules[keras.backend.backend()]
    versions = {"keras": keras.__version__, backend.__name__: backend.__version__}
    text = markdown(found, args, described, versions)
    print(text)
    tables.write(
        {"machine": described, "versions": versions, "tasks": found}, text, args.json, args.markdown
    )


if __name__ == "__main__":
    main()
