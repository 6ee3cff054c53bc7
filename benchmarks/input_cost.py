"""What real data cost: steps fed by the input pipeline against steps on one fixed batch.

    KERAS_BACKEND=jax python benchmarks/input_cost.py --model S16 --tasks train infer --batch 8

The data are JPEG files, of 500 x 375 pixels unless `--jpeg 224x224` says otherwise.
`keras_vit.data.pipeline` decodes them, takes an inception crop of 224 pixels, flips half of them
(in inference: a central crop) and makes batches, on threads beside the model. Turns with the
pipeline alternate with turns on a fixed batch, which have a process of their own: what a pipeline
does to the whole process, its memory for one, is part of its cost. The first steps of each turn
are not timed: they use up what the pipeline had prepared while it was not being waited for.
"""

import concurrent.futures
import functools
import itertools
import multiprocessing
import os
import statistics
import sys
import tempfile
import time

import tables
from input import SIZE, endless_batches, make_images

UNTIMED = 4  # steps at the beginning of a turn


def make_step(args, task):
    """A function of a batch: one step of a new model of the two classes of the photographs."""
    import keras

    import keras_vit

    name = f"{args.model[:-2]}/{args.model[-2:]}"
    model = keras_vit.VisionTransformer(name, image_size=SIZE, num_classes=2)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    model.compile(keras_vit.training.AdamW(1e-4, weight_decay=0.01), loss)
    if task == "train":
        return lambda batch: model.train_on_batch(*batch)
    return lambda batch: model.predict_on_batch(batch[0])


def turn(step, batches, args):
    """Milliseconds per step."""
    for batch in itertools.islice(batches, UNTIMED):
        step(batch)
    start = time.perf_counter()
    for batch in itertools.islice(batches, args.steps):
        step(batch)
    return (time.perf_counter() - start) * 1e3 / args.steps


def prepare_elsewhere(args, task, batch):
    """Makes a model in the process that opens no pipeline, and what its turns are."""
    global turn_elsewhere
    step = make_step(args, task)
    turn_elsewhere = functools.partial(turn, step, itertools.repeat(batch), args)


def fixed_turn():
    return turn_elsewhere()


def measure(args, task, folder):
    """Milliseconds per step of each turn, `"fixed"` and `"real"`."""
    real = endless_batches(folder, args.batch, task == "train")
    step = make_step(args, task)
    fixed = next(real)
    step(fixed)
    turns = {"fixed": [], "real": []}
    spawn = multiprocessing.get_context("spawn")
    arguments = (1, spawn, prepare_elsewhere, (args, task, fixed))
    with concurrent.futures.ProcessPoolExecutor(*arguments) as elsewhere:
        take = {"fixed": lambda: elsewhere.submit(fixed_turn).result()}
        take["real"] = lambda: turn(step, real, args)
        take["fixed"]()  # builds and compiles
        for index in range(args.turns):
            for data in ("fixed", "real")[:: (-1) ** index]:
                turns[data].append(take[data]())
    return turns


def main():
    parser = tables.parser(__doc__)
    parser.add_argument("--model", default="S16")
    tasks = ("train", "infer")
    parser.add_argument("--tasks", nargs="+", default=tasks, choices=tasks)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--jpeg", default="500x375", metavar="WIDTHxHEIGHT")
    parser.add_argument("--turns", type=int, default=6, help="of each data")
    parser.add_argument("--steps", type=int, default=8, help="timed in a turn")
    args = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras

    columns = ("task", "ms, fixed batch", "ms, real data", "cost: median (quartiles)")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        make_images(folder, args.images, tuple(map(int, args.jpeg.split("x"))))
        for task in args.tasks:
            turns = measure(args, task, folder)
            medians = [f"{statistics.median(each):.1f}" for each in turns.values()]
            cost = tables.summary(100 * (r / f - 1) for f, r in zip(*turns.values()))
            spread = f"{cost['median']:+.1f} % ({cost['low']:+.1f} to {cost['high']:+.1f})"
            rows.append((task, *medians, spread))
    print(f"{args.model}, batch {args.batch}, JPEGs of {args.jpeg}\n")
    print(tables.table(columns, rows))
    backend = sys.modules[keras.backend.backend()]
    version = f"{backend.__name__} {backend.__version__}"
    print(tables.machine_line(f"keras {keras.__version__}", version))


if __name__ == "__main__":
    main()
