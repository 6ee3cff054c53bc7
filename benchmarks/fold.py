"""Times inference of hybrids and BiT, with and without folded kernels, beside timm's same model.

    python benchmarks/fold.py [--batch 4] [--repeats 7]

Models and, on PyTorch, timm's (where it is installed) take turns in one process per backend; what
counts are the ratios. Nothing else should keep the machine busy.
"""

import argparse
import functools
import importlib.util
import statistics
import sys
import time

import numpy as np
import tables

MODELS = {"R50_ViT_B16": "vit_base_r50_s16_224", "BiT_R50x1": "resnetv2_50x1_bit"}


def calls(name, images):
    """What is timed -> a function that computes logits."""
    import keras

    import keras_vit

    model = getattr(keras_vit, name)()
    models = {"as trained": model, "folded": keras_vit.fold(model)}
    timed = {k: functools.partial(m.predict_on_batch, images) for k, m in models.items()}
    if keras.backend.backend() == "torch" and importlib.util.find_spec("timm"):
        import timm
        import torch

        peer = timm.create_model(MODELS[name]).eval()
        x = torch.tensor(images.transpose(0, 3, 1, 2)).contiguous()
        timed["timm"] = torch.inference_mode()(lambda: peer(x))
    return timed


def measure(batch, repeats):
    """Prints a row for each model and what was timed, the timed ones in turn."""
    import keras

    backend = keras.backend.backend()
    images = np.random.default_rng(0).uniform(-1, 1, (batch, 224, 224, 3)).astype("float32")
    for name in MODELS:
        timed = calls(name, images)
        for call in timed.values():  # compilation and caches
            call()
        ms = {what: [] for what in timed}
        for what, call in list(timed.items()) * repeats:
            start = time.perf_counter()
            call()
            ms[what].append(1e3 * (time.perf_counter() - start))
        middle = {what: statistics.median(times) for what, times in ms.items()}
        for what, times in ms.items():
            others = [middle.get("as trained"), middle.get("timm")]
            ratios = [f"{other / middle[what]:.2f}" if other else "" for other in others]
            spread = f"{middle[what]:.0f} ({min(times):.0f} to {max(times):.0f})"
            print("|", " | ".join((backend, name, what, spread, *ratios)), "|", flush=True)


def main():
    parser = tables.parser(__doc__)
    parser.add_argument("--batch", type=int, default=4, help="images per call (default 4)")
    parser.add_argument("--repeats", type=int, default=7, help="timed calls (default 7)")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(args.batch, args.repeats)
        return
    print("| backend | model | what | ms (median, range) | times as fast as trained | as timm |")
    print("|---|---|---|---|---|---|", flush=True)
    for _, rows in tables.on_each_backend(__file__, *sys.argv[1:], "--measure"):
        print(rows, end="", flush=True)
    print(f"\nbatch {args.batch}, float32, {tables.machine_line()}")


if __name__ == "__main__":
    main()
