"""Times inference of hybrids and BiT, with and without folded kernels, beside timm's same model.

    KERAS_BACKEND=torch python benchmarks/fold.py [--batch 4] [--repeats 7]

Models and, on PyTorch, timm's (where it is installed) take turns in one process; what counts are
the ratios. Nothing else should keep the machine busy.
"""

import functools
import importlib.util
import statistics
import time

import keras
import numpy as np
import tables

import keras_vit

MODELS = {"R50_ViT_B16": "vit_base_r50_s16_224", "BiT_R50x1": "resnetv2_50x1_bit"}
COLUMNS = ("backend", "model", "what", "ms (median, range)", "times as fast as trained", "as timm")


def calls(name, images):
    """What is timed -> a function that computes logits."""
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


def measure(name, images, repeats):
    """A row of the table for each thing that is timed, in turns."""
    timed = calls(name, images)
    ms = {what: [] for what in timed}
    for call in timed.values():  # compilation and caches
        call()
    for what, call in list(timed.items()) * repeats:
        start = time.perf_counter()
        call()
        ms[what].append(1e3 * (time.perf_counter() - start))
    middle = {what: statistics.median(times) for what, times in ms.items()}
    for what, times in ms.items():
        others = [middle.get("as trained"), middle.get("timm")]
        ratios = [f"{other / middle[what]:.2f}" if other else "" for other in others]
        spread = f"{middle[what]:.0f} ({min(times):.0f} to {max(times):.0f})"
        yield keras.backend.backend(), name, what, spread, *ratios


def main():
    parser = tables.parser(__doc__)
    parser.add_argument("--batch", type=int, default=4, help="images per call (default 4)")
    parser.add_argument("--repeats", type=int, default=7, help="timed calls (default 7)")
    args = parser.parse_args()
    images = np.random.default_rng(0).uniform(-1, 1, (args.batch, 224, 224, 3)).astype("float32")
    rows = [row for name in MODELS for row in measure(name, images, args.repeats)]
    print(tables.table(COLUMNS, rows))
    print(f"\nbatch {args.batch}, float32, {tables.machine_line()}")


if __name__ == "__main__":
    main()
