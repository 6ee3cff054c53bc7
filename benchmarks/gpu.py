"""keras_vit on one GPU beside timm, KerasHub and Flax, from Ti/16 to H/14, up to its memory.

    python benchmarks/gpu.py --save                        # everything: hours
    python benchmarks/gpu.py --model L16 --task train --dtype bfloat16     # the targets
    python benchmarks/gpu.py --model Ti16 --depth 1 --image-size 32 --batch 2 --double 4 \\
        --steps 2 --product 256 --backend torch jax        # a trial, on any machine

The targets: training of L/16 in bfloat16 at 60 % of the peak of a plain product of two matrices,
and ahead of the fastest peer on each backend. Utilisation and the ratio in the tables are these.

The options and tables are those of `compare.py`: keras_vit as it is and compiled, and the peers, on
data that stay on the device, one process at a time, with the batch doubled until nothing fits. In
float32 products are exact, in tf32 they are those of tensor cores. The plain product is measured
first, in each dtype on each backend, and the fastest counts. Utilisation takes every product of the
model once, and a backward pass as two forward passes, whatever is computed besides or again.
"""

import argparse
import itertools
import timeit

import compare
import tables
from peers import BACKENDS, OURS
from steps import set_precision

JIT = {"torch": ("auto", "true"), "tensorflow": ("auto", "true"), "jax": ("auto",)}  # of keras_vit
PEERS = {**compare.USUAL, "torch": ("timm", "timm[jit=true]", "timm[jit=max]")}
BATCHES = {"Ti16": 256, "S16": 128, "B16": 64, "L16": 32, "H14": 16}  # the first ones


def product(backend, dtype, size):
    """Operations per second of a plain product of two matrices, on the backend of this process."""
    from keras import ops, random

    if dtype != "bfloat16":
        set_precision(backend, dtype)
    x = random.uniform((size, size), dtype=dtype if dtype == "bfloat16" else "float32")

    def ten_products():
        for _ in range(10):
            y = ops.matmul(x, x)
        ops.convert_to_numpy(y[0, :1])  # waits for it

    return 10 * 2 * size**3 / min(timeit.repeat(ten_products, number=1, repeat=5))


def arguments_of(args, dtype, model, task, backend):
    """The arguments of one of the comparisons."""
    optimizer = "ours" if task == "train" else "keras"
    one = argparse.Namespace(**vars(args))
    one.dtype, one.model, one.task, one.backend = [dtype], [model], [task], backend
    one.batch = args.batch or [BATCHES.get(model, 16)]
    one.ours = args.ours or [f"{OURS}[jit={jit},optimizer={optimizer}]" for jit in JIT[backend]]
    one.peers = args.peers or PEERS[backend]
    return one


def main():
    parser = compare.make_parser(__doc__)
    add, change = parser.add_argument, parser.set_defaults
    add("--backend", nargs="+", default=BACKENDS, choices=BACKENDS)
    add("--product", type=int, default=8192, metavar="SIZE", help="of the plain product")
    add("--only-product", help=argparse.SUPPRESS)
    change(model=list(BATCHES), task=["train", "infer"], dtype=["bfloat16", "tf32", "float32"])
    change(resident=True, alone=True, batch=None, double=4096, turns=2, steps=20, timeout=1800)
    args = parser.parse_args()
    if args.only_product:
        print(product(args.backend[0], args.only_product, args.product))
        return
    backends = [backend for backend in args.backend if backend in tables.installed()]
    for dtype in args.dtype:
        rates = []
        for backend in backends:
            command = ("--backend", backend, "--product", str(args.product))
            command += ("--only-product", dtype)
            rates.append(float(tables.run(__file__, *command, backend=backend).split()[-1]))
        args.peak_tflops = max(rates, default=0) / 1e12
        print(f"{dtype}: a plain product reaches {args.peak_tflops:.4g} TFLOP/s.\n", flush=True)
        for work in itertools.product(args.model, args.task, backends):
            one = arguments_of(args, dtype, *work)
            for all_settings in compare.comparisons(parser, one):
                compare.measure(all_settings, one)


if __name__ == "__main__":
    main()
