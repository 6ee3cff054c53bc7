"""`keras-vit list`, `info` and `fetch`: published weights, and what a model is."""

import dataclasses
import os
import sys

from keras_vit_cli.arguments import FLAG, MODEL, count, not_negative, positive
from keras_vit_cli.backend import choose_backend, without_keras
from keras_vit_cli.models import open_model
from keras_vit_cli.output import print_json, print_rows

COLUMNS = ("name", "family", "variant", "px", "classes", "pretrained on", "finetuned on")
COLUMNS += ("MB", "top-1", "licence")


def add_list(add):
    add("--variant", "one architecture, such as B/16 or DINOv2-S/14")
    add("--family", "architectures, such as dino, clip or mae; or who published it: timm, ...")
    add("--data", "the data set of the last training, such as imagenet-1k")
    add("--image-size", "resolution", type=count, metavar="PX")
    add("--max-size", "no larger files than that", type=positive, metavar="MB")
    add("--min-accuracy", "least published ImageNet top-1", type=not_negative, metavar="PERCENT")
    add("--csv --json")


def run_list(args):
    """List published weights that the names of other commands mean.

    keras-vit list --family dinov2 --max-size 400
    """
    with without_keras():
        from keras_vit.weights.catalog import checkpoints

        records = checkpoints(args.variant, args.family, args.data, args.image_size)
        rows = [
            row
            for row in map(_row, records)
            if (args.max_size is None or (row["MB"] is not None and row["MB"] <= args.max_size))
            and (args.min_accuracy is None or (row["top-1"] or 0) >= args.min_accuracy)
        ]
        if not rows:
            raise ValueError("No published weights are so; leave out one of the filters.")
        print_rows(rows, COLUMNS, args, left=3)


def _row(c):
    """What the catalogue says; the size is the published one, or that of float32 parameters."""
    size = c.size or (c.approximate_mib or 0) * 2**20 or (c.parameters or 0) * 4
    top_1 = dict(c.accuracy).get("imagenet top-1")
    values = (c.name, c.family, c.variant, c.image_size, c.num_classes, c.pretrained_on or None)
    values += (c.finetuned_on, round(size / 1e6, 1) if size else None, top_1, c.licence)
    return dict(zip(COLUMNS, values))


def add_fetch(add):
    add("names", "names that `keras-vit list` prints, or URLs", nargs="+", metavar="NAME")


def run_fetch(args):
    """Download published weights into the cache, so that they open offline later.

    keras-vit fetch deit_tiny_patch16_224.fb_in1k
    """
    from keras_vit.weights import catalog, fetch

    places = []
    for name in args.names:  # a wrong name is an error before any download
        is_url = "://" in name and len(catalog.lookup(name)) != 1
        record = None if is_url else catalog.find(name)
        places.append((name, None) if is_url else (record.url, record.size))
    for address, size in places:
        print(fetch(address, size=size))
        if address.startswith("package://"):
            print(f"{address} comes with keras3-vit; nothing is downloaded", file=sys.stderr)


def add_info(add):
    add("model", f"{MODEL}; what lies on the disk is read whole")
    add("--open", "open published weights, too, and download them", **FLAG)
    add("--json")


def run_info(args):
    """Tell what a model, a checkpoint or a name of published weights is.

    keras-vit info deit_tiny_patch16_224.fb_in1k
    """
    with without_keras():
        from keras_vit.weights import catalog

        records = [] if os.path.exists(args.model) else catalog.lookup(args.model)
        if len(records) == 1 and not args.open:
            _show(_of_record(records[0]), args)
            return
    choose_backend(args.backend)
    _show(_of_model(open_model(args.model)), args)


def _show(fields, args):
    from keras_vit.text import table

    if args.json:
        print_json(fields, default=str)
        return
    lines = [(name, _text(value)) for name, value in fields.items() if value not in (None, "")]
    print(table(lines, left=2))
    if "published at" in fields:
        text = "--open opens the weights, and downloads those that are not here."
        print(f"\nThis is what the catalogue says; {text}")


def _of_record(c):
    """{name: value} of published weights, without opening them."""
    from keras_vit.weights.fetch import fetch

    try:
        place = str(fetch(c.url, offline=True))
    except OSError:
        place = "no"
    return {
        "name": c.name,
        "published at": c.url,
        "by": c.family,
        "architecture": c.variant,
        "image size": c.image_size,
        "classes": c.num_classes,
        "class order": c.label_set,
        "pretrained on": c.pretrained_on or None,
        "finetuned on": c.finetuned_on,
        "parameters": c.parameters,
        "bytes": c.size,
        "accuracy": dict(c.accuracy) or None,
        "preprocessing": c.preprocessing and c.preprocessing.to_config(),
        "licence": c.licence,
        "on this machine": place,
    }


def _of_model(model):
    """{name: value} of an opened model; fewer of one that is not of this library."""
    from keras_vit.heads import heads_of
    from keras_vit.weights import catalog

    fields = {"name": model.name, "class": type(model).__name__}
    fields["parameters"] = model.count_params()
    if not hasattr(model, "variant"):
        heads = {head: one.output_shape for head, one in heads_of(model).items()}
        shapes = {"input": str(model.input_shape), "output": heads or str(model.output_shape)}
        return fields | shapes
    records = catalog.lookup(str(model.weights_from)) if model.weights_from else ()
    report, names = getattr(model, "load_report", None), model.class_names
    changed = {
        field.name: getattr(model.variant, field.name)
        for field in dataclasses.fields(model.variant)
        if getattr(model.variant, field.name) != field.default
    }
    return {
        **fields,
        "architecture": changed,
        "image size": list(model.image_size),
        "channels": model.channels,
        "classes": model.num_classes,
        "class order": model.label_set,
        "class names": list(names) if isinstance(names, tuple) else names,  # a dict by head
        "outputs read as": model.reading,
        "preprocessing": model.preprocessing.to_config(),
        "weights from": model.weights_from,
        "licence of these": records[0].licence if len(records) == 1 else None,
        "format": report.family if report else None,
        "head": report.head if report else None,
    }


def _text(value, longest=10):
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in value.items())
    if isinstance(value, list) and len(value) > longest:
        return f"{_text(value[:longest])} and {len(value) - longest} more"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)
