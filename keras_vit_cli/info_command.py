"""`keras-vit info`: what a file, a folder, a URL or a name is."""

from keras_vit_cli.arguments import MODEL, flag
from keras_vit_cli.backend import choose_backend, without_keras
from keras_vit_cli.models import open_model
from keras_vit_cli.output import print_json

HELP = "tell what a model, a checkpoint or a name of published weights is"
EXAMPLE = "keras-vit info deit_tiny_patch16_224.fb_in1k"
NEEDS_BACKEND = False  # but to open a model


def add_arguments(add):
    add("model", help=f"{MODEL}; what lies on the disk is read whole")
    add("--open", **flag("open published weights, too, and download them"))
    add("--json")


def run(args):
    import os

    with without_keras():
        from keras_vit.weights import catalog

        records = [] if os.path.exists(args.model) else catalog.lookup(args.model)
        published = len(records) == 1 and not args.open
        if published:
            _show(of_record(records[0]), args)
            return
    choose_backend(args.backend)
    _show(of_model(open_model(args.model)), args)


def _show(fields, args):
    from keras_vit.text import table

    if args.json:
        print_json(fields, default=str)
    else:
        lines = [(name, _text(value)) for name, value in fields.items() if value not in (None, "")]
        print(table(lines, left=2))
        if "published at" in fields:
            what = "opens the weights, and downloads those that are not here"
            print(f"\nThis is what the catalogue says; --open {what}.")


def of_record(c):
    """{name: value} of published weights, without opening them."""
    from keras_vit.weights.fetch import fetch

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
        "on this machine": _cached(c, fetch),
    }


def _cached(record, fetch):
    try:
        return str(fetch(record.url, offline=True))
    except OSError:
        return "no"


def of_model(model):
    """{name: value} of an opened model; fewer of one that is not of this library."""
    import dataclasses

    from keras_vit.heads import heads_of
    from keras_vit.weights import catalog

    fields = {"name": model.name, "class": type(model).__name__}
    fields["parameters"] = model.count_params()
    if not hasattr(model, "variant"):
        heads = {head: one.output_shape for head, one in heads_of(model).items()}
        shapes = {"input": str(model.input_shape), "output": heads or str(model.output_shape)}
        return fields | shapes
    source = model.weights_from
    records = catalog.lookup(str(source)) if source else ()
    record = records[0] if len(records) == 1 else None
    report = getattr(model, "load_report", None)
    names = model.class_names  # of several heads a dict
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
        "class names": list(names) if isinstance(names, tuple) else names,
        "outputs read as": model.reading,
        "preprocessing": model.preprocessing.to_config(),
        "weights from": source,
        "licence of these": record.licence if record else None,
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
