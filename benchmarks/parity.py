"""Compares the models with the authors' own outputs and prints the table of docs/checkpoints.md.

    python benchmarks/parity.py

Every checkpoint in tests/oracles of every family, on every installed backend, in float32 and
float64. The outputs are those of Google's Flax code, big_vision, timm, Hugging Face and KerasHub.
"""

import json
import sys

import tables

ORACLES = tables.ROOT / "tests" / "oracles"
FAMILIES = {
    "google-research/vision_transformer": ("flax_vit", "checkpoint.npz"),
    "google-research/big_vision": ("big_vision_vit", "checkpoint.npz"),
    "timm 1.0.31": ("timm", "model.safetensors"),
    "transformers 4.49.0": ("hf_transformers4", ""),
    "transformers 5.23.0": ("hf_transformers5", ""),
    "KerasHub 0.32.0": ("keras_hub", ""),
    "hybrids (Google, timm, transformers)": ("hybrids", None),
    "BiT, big_transfer": ("bit_official", "checkpoint.npz"),
    "BiT, big_vision": ("big_vision_bit", "checkpoint.npz"),
    "BiT, timm": ("bit_timm", "model.safetensors"),
    "BiT, transformers 5.23.0": ("bit_hf", ""),
}


def checkpoint_of(case, file):
    """The checkpoint of an oracle: a file of this name, the folder, or whichever is there."""
    if file is None:
        files = [case / name for name in ("checkpoint.npz", "model.safetensors")]
        return case if case.name.startswith("hf") else next(p for p in files if p.is_file())
    return case / file if file else case


def errors(dtype):
    """Family -> [largest difference, largest output, checkpoints] on this backend."""
    import keras
    import numpy as np

    import keras_vit

    differences = {}
    for family, (folder, file) in FAMILIES.items():
        worst, scale, count = 0.0, 0.0, 0
        for case in sorted(path.parent for path in (ORACLES / folder).glob("*/io.npz")):
            io = np.load(case / "io.npz")
            outputs = ("pooler_output_f64", "output_f64", "logits_f64")
            expected = io[next(name for name in outputs if name in io)]
            model = keras_vit.from_checkpoint(checkpoint_of(case, file), dtype=dtype)
            outputs = keras.ops.convert_to_numpy(model(io["input"].astype(dtype)))
            worst = max(worst, float(np.abs(outputs - expected).max()))
            scale, count = max(scale, float(np.abs(expected).max())), count + 1
        differences[family] = [worst, scale, count]
    return differences


def main():
    if len(sys.argv) > 1:
        print(json.dumps(errors(sys.argv[1])))
        return
    columns, rows = ["family", "checkpoints", "largest output"], {}
    for dtype, in_64_bits in (("float32", "0"), ("float64", "1")):
        runs = tables.on_each_backend(__file__, dtype, JAX_ENABLE_X64=in_64_bits)
        for backend, printed in runs:
            columns.append(f"{backend} {dtype}")
            for family, (worst, scale, count) in json.loads(printed.splitlines()[-1]).items():
                row = rows.setdefault(family, [family, count, f"{scale:.2g}"])
                row.append(f"{worst:.1e}")
    print(tables.table(columns, rows.values()))
    print("\n" + tables.machine_line())


if __name__ == "__main__":
    main()
