"""Exports a small model of every kind in every format, and says what works.

    KERAS_BACKEND=torch python benchmarks/exports.py    # what this backend writes
    python benchmarks/exports.py --docs                 # the tables of docs/export.md
    python benchmarks/exports.py --size B/16 --formats onnx    # size and seconds of a large one

One line for each cell: the largest difference of the file, run in its own runtime, from the model;
or the first line of the error. They are added to docs/export_matrix.csv, where the last line of a
cell counts; cells that are there are tried again with `--again` only.
"""

import csv
import pathlib
import tempfile
import time

import keras
import numpy as np
import tables

import keras_vit
from keras_vit.exports import FORMATS

CELLS = tables.ROOT / "docs" / "export_matrix.csv"
KEY, FOUND = ("model", "format", "running"), ("written_by", "difference", "error")
START, END = "<!-- by benchmarks/exports.py -->", "<!-- end -->"
SMALL = {"width": 32, "depth": 2, "num_heads": 4, "patch_size": 8, "image_size": 32}
PATCHES = {"class_token": False, "pool": "mean"}
HYBRID = {"stem": (1, 1), "stem_width": 0.5, "patch_size": 1}
DINO_V3 = {"mlp": "swiglu", "rotary": "dinov3", "position": "none", "layer_scale": 1e-5}
CLIP = {"pre_norm": "layer_norm", "projection": 16, "activation": "quick_gelu"}
OPEN = {"variable_size": True}
KINDS = {  # name -> arguments of a `VisionTransformer`
    "ViT": {},
    "ViT, preprocess=True": {},
    "ViT, pool mean": PATCHES,
    "ViT, pool token_mean": {"pool": "token_mean"},
    "ViT, pool map (SigLIP)": {"pool": "map"},
    "ViT, pool probe (AIMv2)": {"pool": "probe", "norm": "rms_norm", "mlp": "swiglu"},
    "ViT, pool first": {"pool": "first"},
    "ViT, pool None: every token": {"pool": None},
    "ViT, no classes": {"num_classes": 0},
    "ViT, representation_size": {"representation_size": 16},
    "ViT, one channel, 32 x 48 px": {"channels": 1, "image_size": (32, 48)},
    "position learned_2d": {"position": "learned_2d"},
    "position sincos_2d": {"position": "sincos_2d", **PATCHES},
    "position relative": {"position": "relative"},
    "position relative_2d (BEiT)": {"position": "relative_2d", "biases": "no_key"},
    "position none": {"position": "none"},
    "position in every layer": {"position_at": "every_layer"},
    "variable size": OPEN,
    "variable size, bicubic": {"interpolation": "bicubic", **OPEN},
    "variable size, learned_2d": {"position": "learned_2d", **OPEN},
    "variable size, sincos_2d": {"position": "sincos_2d", **OPEN},
    "variable size, rotary (DINOv3)": {**DINO_V3, **OPEN},
    "variable size, rotary (EVA-02)": {"rotary": "eva02", **OPEN},
    "hybrid": HYBRID,
    "hybrid, variable size": {**HYBRID, **OPEN},
    "swiglu, rotary, qk_norm, layer_scale": {**DINO_V3, "qk_norm": "layer_norm"},
    "rotary, learned frequencies": {"rotary": "mixed"},
    "registers (DINOv2)": {"registers": 4, "layer_scale": 1e-5, "gelu": "erf"},
    "pre_norm, projection, quick_gelu (CLIP)": CLIP,
    "post_norm": {"block": "post_norm"},
    "parallel": {"block": "parallel"},
    "distillation token (DeiT)": {"distillation": True},
    "token merging": {"token_merging": 2},
    **{dtype: {"dtype": dtype} for dtype in ("mixed_bfloat16", "bfloat16", "float64")},
    **{change: {} for change in ("LoRA", "int8", "int4", "float8")},
}
BITS = {"BiT": {}, "BiT v1": {"version": "v1"}}
# Of cells that another backend writes in a process of its own, examples are enough.
EXAMPLES = ("ViT", "variable size", "BiT", "int8")


def build(name):
    """A model with random weights, since fresh zeros and ones would hide what is left out."""
    if name in BITS:
        bit = {"blocks": (1, 1), "width": 0.5, "image_size": 48, "num_classes": 10}
        return _randomized(keras_vit.BiT(**bit, **BITS[name]))
    model = _randomized(keras_vit.VisionTransformer(**{**SMALL, "num_classes": 10, **KINDS[name]}))
    if name == "LoRA":
        keras_vit.training.enable_lora(model, 2)
        _randomized(model)
    if name in ("int8", "int4", "float8"):
        model.quantize(name)
    return model


def _randomized(model):
    random = np.random.default_rng(0)
    for weight in model.weights:
        values = random.normal(size=weight.shape) / max(np.prod(weight.shape[:-1]), 1) ** 0.5
        weight.assign(values + ("gamma" in weight.path))
    return model


def tried(name, format):
    """What one cell gave, by the names of `FOUND`."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / f"model{FORMATS[format].suffix}"
        preprocess = name.endswith("preprocess=True")
        try:
            done = keras_vit.export(build(name), path, format, preprocess=preprocess, check=True)
        except Exception as error:
            text = f"{type(error).__name__}: {error}".replace(folder, "").strip()
            return {"error": text.splitlines()[0][:250]}
    return {"written_by": done.backend, "difference": f"{done.difference:.1e}"}


def known():
    """Cells by model, format and running backend."""
    rows = tables.read(CELLS) if CELLS.exists() else []
    return {tuple(row[name] for name in KEY): row for row in rows}


def try_all(formats, names, again):
    for format in formats:
        native = keras.backend.backend() in FORMATS[format].writers
        for name in [each for each in names if native or each in EXAMPLES]:
            key = (name, format, keras.backend.backend())
            if again or key not in known():
                start = time.perf_counter()
                row = dict(zip(KEY, key)) | dict.fromkeys(FOUND, "") | tried(name, format)
                with open(CELLS, "a", newline="") as file:
                    writer = csv.DictWriter(file, KEY + FOUND, lineterminator="\n")
                    if not file.tell():
                        writer.writeheader()
                    writer.writerow(row)
                outcome = row["difference"] or row["error"]
                print(*key, outcome, f"({time.perf_counter() - start:.0f} s)", sep=", ", flush=True)


def document(page):
    """Writes the cells into a page: a column for each format and backend that writes it."""
    rows, errors = known(), {}
    pairs = [(format, backend) for format in FORMATS for backend in FORMATS[format].writers]

    def cell(*key):
        row = rows.get(key)
        if row is None or row["difference"]:
            return row["difference"] if row else "not tried"
        return f"no ({errors.setdefault(row['error'], len(errors) + 1)})"

    lines = [[name, *(cell(name, *pair) for pair in pairs)] for name in (*KINDS, *BITS)]
    parts = [tables.table(["model", *map(", ".join, pairs)], lines)]
    others = [(*k, rows[k]["written_by"], cell(*k)) for k in rows if k[1:] not in pairs]
    parts.append("\n".join(f"{i}. {error}" for error, i in errors.items()))
    parts.append(tables.table([*KEY, "written by", "difference"], others))
    before, after = page.read_text().split(START)
    text = "\n\n".join([before + START, *filter(None, parts), END + after.split(END)[1]])
    page.write_text(text)


def measure(variant, formats):
    """Prints size and seconds of the export of a large model, without a check."""
    for format in formats:
        model = keras_vit.VisionTransformer(variant)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / f"model{FORMATS[format].suffix}"
            wall, cpu = time.perf_counter(), time.process_time()
            done = keras_vit.export(model, path, format)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        size, seconds = f"{done.size / 1e6:.0f} MB", f"{wall:.0f} s, {cpu:.0f} s of CPU"
        print(variant, format, done.backend, size, seconds, sep=" | ")


def main():
    parser = tables.parser(__doc__)
    parser.add_argument("--formats", nargs="+", default=list(FORMATS), choices=list(FORMATS))
    parser.add_argument("--models", nargs="+", default=[*KINDS, *BITS], choices=[*KINDS, *BITS])
    parser.add_argument("--again", action="store_true", help="try known cells again too")
    parser.add_argument("--docs", action="store_true", help="write the tables of docs/export.md")
    parser.add_argument("--size", metavar="VARIANT", help="size and seconds of a large model")
    args = parser.parse_args()
    if args.size:
        measure(args.size, args.formats)
    elif args.docs:
        document(CELLS.with_name("export.md"))
    else:
        try_all(args.formats, args.models, args.again)


if __name__ == "__main__":
    main()
