"""Plans the training of a ViT on many chips: memory, the largest batch, and what is communicated.

    python benchmarks/plan.py --variant g/14 --devices 256 --hbm 95GB --batch 4096
    python benchmarks/plan.py --variant H/14 --devices 256 --hbm 80GiB --image-size 518 --ema
    python benchmarks/plan.py --variant B/16 --width 1024 --heads 16 --devices 8 --hbm 16GB

Nothing is allocated: the model and its optimizer are those of the library, with shapes alone.
Memory is what one chip holds at the fullest moment of an update; `plan_check.py` compares it with
what is measured on small models. GB are 10^9 bytes.
"""

import argparse
import os
import re
import sys

import tables

UNITS = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
PRECISIONS = ("float32", "mixed_bfloat16")


def memory_size(text):
    """Bytes of a text such as `95GB` or `80GiB`.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([A-Za-z]+)\s*", text)
    unit = match and UNITS.get(match[2].upper())
    if not unit or not float(match[1]):
        raise argparse.ArgumentTypeError(
            "memory must be a positive number with a unit, such as 95GB, 80GiB or 141GB. "
            f"Received: {text!r}."
        )
    return int(float(match[1]) * unit)


def count(text):
    """A positive int."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a positive whole number. Received: {text!r}.")
    return int(text)


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="\n".join(__doc__.splitlines()[2:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--variant", nargs="+", default=["g/14"], help="such as g/14 H/14")
    parser.add_argument("--devices", type=count, default=256, help="chips (default %(default)s)")
    parser.add_argument("--hbm", type=memory_size, required=True, help="of a chip: 95GB, 80GiB")
    parser.add_argument("--batch", type=count, default=4096, help="images of an update, all chips")
    parser.add_argument("--image-size", type=count, default=224)
    parser.add_argument("--classes", type=int, default=1000, help="0 for no head")
    parser.add_argument("--model-devices", type=count, nargs="+", help="default: 2 4 8 16")
    parser.add_argument("--optimizer", default="adamw", choices=("adamw", "sgdm"))
    parser.add_argument("--ema", action="store_true", help="keep averaged weights")
    parser.add_argument("--precision", nargs="+", default=PRECISIONS, choices=PRECISIONS)
    parser.add_argument(
        "--attention",
        choices=("stored", "fused"),
        help="whether the softmax is kept or computed again, as FlashAttention does; default: "
        "what Keras does on the backend: stored with JAX but for bfloat16 on NVIDIA, fused with "
        "PyTorch",
    )
    parser.add_argument("--backend", choices=("jax", "torch"), help="default: KERAS_BACKEND or jax")
    for name, kind in (("width", int), ("depth", int), ("heads", int), ("mlp-dim", int)):
        parser.add_argument(f"--{name}", type=kind, help="another than the variant's")
    parser.add_argument("--pool", choices=("token", "mean", "map"), help="likewise")
    tables.add_outputs(parser)
    args = parser.parse_args(arguments)
    given = os.environ.get("KERAS_BACKEND")
    args.backend = args.backend or (given if given in ("jax", "torch") else "jax")
    args.attention = args.attention or ("stored" if args.backend == "jax" else "fused")
    if args.batch % args.devices:
        nearest = max(args.batch // args.devices, 1) * args.devices
        parser.error(
            "--devices must divide --batch, as each chip takes as many images. Received: "
            f"--batch {args.batch}, --devices {args.devices}; the nearest batches that fit are "
            f"{nearest} and {nearest + args.devices}."
        )
    for m in args.model_devices or ():
        if args.devices % m:
            parser.error(
                "--model-devices must divide --devices. Received: --model-devices "
                f"{m}, --devices {args.devices}."
            )
    return args, parser


def architecture(args):
    names = {"heads": "num_heads"}
    chosen = {k: getattr(args, k) for k in ("width", "depth", "heads", "mlp_dim", "pool")}
    return {names.get(k, k): v for k, v in chosen.items() if v is not None}


def placings(args, shapes, precision):
    """The layouts that the variables allow, without and with rematerialisation."""
    from plan_memory import Placing

    heads = shapes.variant.num_heads
    sizes = args.model_devices or [m for m in (2, 4, 8, 16) if args.devices % m == 0]
    chosen = [("data_parallel", 1)]
    chosen += [("model_parallel", m) for m in sizes if args.model_devices or heads % m == 0]
    chosen += [("fully_sharded", 1)]
    for mode, m in chosen:
        for remat in (False, True):
            yield Placing(mode, args.devices, m, precision, remat, args.attention, args.backend)


def plan(args, shapes, precision):
    """Every layout with its figures, as a list of dicts of bytes and images."""
    import plan_memory
    import plan_traffic

    rows = []
    for placing in placings(args, shapes, precision):
        images = args.batch // placing.groups
        row = {"layout": placing.mode, "model_devices": placing.model_devices}
        row |= {"precision": precision, "remat": placing.remat, "batch": args.batch}
        row |= plan_memory.state(shapes, placing) | plan_memory.step(shapes, placing, images)
        row["total"] = plan_memory.total(shapes, placing, images)
        row["fits"] = row["total"] <= args.hbm
        largest = plan_memory.largest_batch(shapes, placing, args.hbm)
        row["largest_batch"] = largest / placing.model_devices
        row["gradient_traffic"] = plan_traffic.gradients(shapes, placing)
        row["activation_traffic"] = plan_traffic.activations(shapes, placing, images)
        row["minimum"] = plan_traffic.data_parallel_minimum(shapes, args.devices)
        rows.append(row)
    return rows


def gb(value):
    """Bytes as GB, with three digits."""
    return f"{value / 1e9:.3g}" if value < 1e11 else f"{value / 1e9:.0f}"


MEMORY = ("parameters", "optimizer", "average", "gradients", "casts", "activations", "working")


def name_of(row):
    shared = f" of {row['model_devices']}" if row["model_devices"] > 1 else ""
    return f"{row['layout']}{shared}"


def memory_table(rows, args):
    columns = ["layout", "remat", *MEMORY, "total", "fits", "largest batch per chip"]
    lines = []
    for row in rows:
        parts = [gb(row[part]) if row[part] else "-" for part in MEMORY]
        most = f"{row['largest_batch']:.4g}" if row["largest_batch"] else "none"
        fits = "yes" if row["fits"] else "no"
        lines.append(
            (name_of(row), "yes" if row["remat"] else "no", *parts, gb(row["total"]), fits, most)
        )
    return tables.table(columns, lines)


def traffic_table(rows):
    columns = ("layout", "remat", "gradients, variables", "activations", "together")
    columns += ("times data parallel's minimum",)
    lines = []
    for row in rows:
        sent = row["gradient_traffic"] + row["activation_traffic"]
        if not row["remat"] or row["activation_traffic"]:
            figures = [gb(row["gradient_traffic"]), gb(row["activation_traffic"]), gb(sent)]
            ratio = f"{sent / row['minimum']:.2f}" if row["minimum"] else "-"
            remat = "yes" if row["remat"] else "no" if row["activation_traffic"] else "either"
            lines.append((name_of(row), remat, *figures, ratio))
    return tables.table(columns, lines)


def markdown(args, variant, shapes, rows):
    extra = ", averaged weights" if args.ema else ""
    size = "x".join(map(str, dict.fromkeys(shapes.image_size)))
    parts = [
        f"### {variant} on {args.devices} chips of {args.hbm / 1e9:.4g} GB: batch {args.batch}, "
        f"{size} px\n\n{shapes.parameters / 1e6:.1f} M parameters, {shapes.tokens} tokens, "
        f"{args.optimizer}{extra}, softmax {args.attention}; {args.batch // args.devices} images "
        "per chip. GB on one chip; the total is that of the fullest moment of an update, less than "
        "the sum, as activations go while gradients come."
    ]
    for precision in args.precision:
        mine = [row for row in rows if row["precision"] == precision]
        sent = f"GB that a chip sends in an update; {gb(mine[0]['minimum'])} GB are the least that "
        sent += "summing all gradients costs."
        parts += [f"{precision}:", memory_table(mine, args), sent, traffic_table(mine)]
    return "\n\n".join(parts)


def main():
    args, parser = parse()
    os.environ["KERAS_BACKEND"] = args.backend
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from plan_shapes import get_shapes

    texts, report = [], {}
    try:
        for variant in args.variant:
            shapes = get_shapes(
                variant,
                args.image_size,
                args.classes,
                args.optimizer,
                args.ema,
                **architecture(args),
            )
            rows = [row for p in args.precision for row in plan(args, shapes, p)]
            report[variant] = rows
            texts.append(markdown(args, variant, shapes, rows))
    except ValueError as error:
        parser.error(str(error))
    text = "\n\n".join(texts)
    print(text)
    tables.write({"plans": report}, text, args.json, args.markdown)


if __name__ == "__main__":
    main()
