"""The catalogue of published checkpoints as a printed list."""

import textwrap

from keras_vit.weights.catalog import FAMILIES, checkpoints, read_tables

NAME_WIDTH = 34  # of the first column: longer names get a line of their own


def list_weights(
    variant: str | None = None,
    family: str | None = None,
    data: str | None = None,
    image_size: int | None = None,
) -> None:
    """Prints a table of checkpoints; `keras_vit.weights.checkpoints` gives their records.

    The columns are the name for `weights=`, the architecture, the resolution (px), the number of
    classes, the data sets (pre-training → fine-tuning), the size in MiB (after `~` computed from
    the number of float32 parameters), the published ImageNet top-1 accuracy, and the licence. The
    285 files of BiT on VTAB-1k share one line per model. Arguments and errors as in `checkpoints`.
    """
    fitting = checkpoints(variant, family, data, image_size)
    print(_line(("name", "variant", "px", "classes", "trained on", "MiB", "top-1", "licence")))
    for family in FAMILIES:
        rows = {row[0]: row for row in (_cells(c) for c in fitting if c.family == family)}
        if rows:
            print(f"\n{family}:", *map(_line, rows.values()), sep="\n")
    names = {c.name for c in fitting}
    tasks = ", ".join(sorted({c.label_set[8:] for c in fitting if c.name.startswith("vtab/")}))
    if tasks:
        text = f"The * of vtab/BiT-M-…-run*-* are the runs 0, 1, 2 and the tasks {tasks}."
        print("\n" + textwrap.fill(text, 116, break_on_hyphens=False))
    others = {a: name for a, name in read_tables()[1].items() if name in names and "://" not in a}
    if others:
        print("\nother names:", *(f"{a:<18}  {name}" for a, name in others.items()), sep="\n")


def _cells(c):
    vtab = c.name.startswith("vtab/")
    data_sets = (c.pretrained_on, "vtab-1k" if vtab else c.finetuned_on)
    mib = f"~{c.parameters * 4 / 2**20:.0f}" if c.parameters else "-"
    mib = f"{c.size / 2**20:.1f}" if c.size else mib
    top_1 = dict(c.accuracy).get("imagenet top-1")
    return (
        f"{c.name.partition('-run')[0]}-run*-*" if vtab else c.name,
        c.variant,
        c.image_size or "-",
        "*" if vtab else c.num_classes or "-",
        " → ".join(d.replace("imagenet-", "i") for d in data_sets if d),
        f"{c.approximate_mib:.0f}" if c.approximate_mib else mib,
        "-" if top_1 is None else f"{top_1:.2f}",
        c.licence,
    )


def _line(cells):
    name, *others = cells
    formats = ("{:<20}", "{:>4}", "{:>7}", "{:<14}", "{:>5}", "{:>5}", "{:<10}")
    text = "  ".join(form.format(cell) for form, cell in zip(formats, others)).rstrip()
    separator = "  " if len(name) <= NAME_WIDTH else "\n" + " " * (NAME_WIDTH + 2)
    return f"{name:<{NAME_WIDTH}}{separator}{text}"
