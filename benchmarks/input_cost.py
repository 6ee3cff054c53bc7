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


def parse():
    parser = tables.parser(__doc__)
    parser.add_argument("--model", default="S16")
    tasks = ("train", "infer")
    parser.add_argument("--tasks", nargs="+", default=tasks, choices=tasks)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--dtype", default="float32", choices=("float32", "mixed_bfloat16"))
    parser.add_argument("--workers", type=int, default=0, help="processes of the pipeline")
    parser.add_argument("--threads", type=int, help="of the pipeline; default: one per core")
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--jpeg", default="500x375", metavar="WIDTHxHEIGHT")
    parser.add_argument("--turns", type=int, default=6, help="of each data")
    parser.add_argument("--steps", type=int, default=8, help="timed in a turn")
    parser.add_argument("--untimed", type=int, default=4, help="at the beginning of a turn")
    return parser.parse_args()


def make_step(args, task):
    """A function of a batch: one step of a new model of the two classes of the photographs."""
    import keras

    import keras_vit

    keras.config.set_dtype_policy(args.dtype)
    name = f"{args.model[:-2]}/{args.model[-2:]}"
    model = keras_vit.VisionTransformer(name, image_size=SIZE, num_classes=2)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    model.compile(keras_vit.training.AdamW(1e-4, weight_decay=0.01), loss)
    if task == "train":
        return lambda batch: model.train_on_batch(*batch)
    return lambda batch: model.predict_on_batch(batch[0])


def turn(step, batches, args):
    """Milliseconds per step."""
    for batch in itertools.islice(batches, args.untimed):
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
    real = endless_batches(folder, args.batch, task == "train", args.threads, args.workers)
    step = make_step(args, task)
    fixed = next(real)
    step(fixed)
    turns = {"fixed": [], "real": []}
    spawn = multiprocessing.get_context("spawn")
    arguments = (1, spawn, prepare_elsewhere, (args, task, fixed))
    with concurrent.futures.ProcessPoolExecutor(*arguments) as elsewhere:
        take = {
            "fixed": lambda: elsewhere.submit(fixed_turn).result(),
            "real": lambda: turn(step, real, args),
        }
        take["fixed"]()  # builds and compiles
        for index in range(args.turns):
            for data in ("fixed", "real")[:: (-1) ** index]:
                turns[data].append(take[data]())
    return turns


def main():
    args = parse()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    import keras

    columns = ("task", "ms, fixed batch", "ms, real data", "cost: median (quartiles)")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        make_images(folder, args.images, tuple(map(int, args.jpeg.split("x"))))
        for task in args.tasks:
            turns = measure(args, task, folder)
            fixed, real = (f"{statistics.median(turns[data]):.1f}" for data in ("fixed", "real"))
            costs = (100 * (r / f - 1) for r, f in zip(turns["real"], turns["fixed"]))
            cost = tables.summary(costs)
            spread = f"{cost['median']:+.1f} % ({cost['low']:+.1f} to {cost['high']:+.1f})"
            rows.append((task, fixed, real, spread))
    print(f"{args.model}, batch {args.batch}, {args.dtype}, JPEGs of {args.jpeg}\n")
    print(tables.table(columns, rows))
    backend = sys.modules[keras.backend.backend()]
    versions = (f"keras {keras.__version__}", f"{backend.__name__} {backend.__version__}")
    print(tables.machine_line(*versions))


if __name__ == "__main__":
    main()
