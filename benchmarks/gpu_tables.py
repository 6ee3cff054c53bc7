"""The tables of `gpu.py`."""

import tables


def markdown(report):
    """A table per model, task and backend, the best points, and where it was."""
    points = report["points"]
    groups = {}
    for point in points:
        groups.setdefault((point["model"], point["task"], point["backend"]), []).append(point)
    parts = [_group(*key, found, report["products"]) for key, found in groups.items()]
    measured = [point for point in points if "error" not in point]
    best = [line for found in groups.values() for line in _best(found)]
    parts += ["\n".join(best)] if best else []
    if report["left_out"]:
        parts.append("Not tried, for want of time: " + "; ".join(report["left_out"]) + ".")
    versions = tables.merged_versions([point["versions"] for point in measured])
    device = measured[0]["device"] if measured else None
    parts.append(tables.machine_line(report["machine"], versions, device))
    return "\n\n".join(parts)


def _group(model, task, backend, points, products):
    title = f"### {model}, {task}, {backend}"
    measured = {
        dtype: products[f"{backend} {model} {dtype}"]
        for dtype in ("bfloat16", "float32")
        if f"{backend} {model} {dtype}" in products
    }
    rates = ", ".join(f"{rate:.3g} TFLOP/s in {dtype}" for dtype, rate in measured.items())
    columns = ("implementation", "dtype", "batch", "ms: min / median", "images/s", "TFLOP/s")
    columns += ("utilisation", "of products", "MiB", "first call s")
    rows = [_row(point, measured.get(point["dtype"])) for point in points]
    text = [title, "", tables.table(columns, rows)]
    return "\n".join([*text, "", f"Products of matrices: {rates}."] if rates else text)


def _row(point, products):
    first = f"`{point['label']}`", point["dtype"], point["batch"]
    if "error" in point:
        reason = point["error"] if point["fits"] else "does not fit in memory"
        return (*first, reason.replace("|", "/"), *["-"] * 6)
    ms = point["ms"]
    share = point["utilisation"]
    return (
        *first,
        f"{ms['min']:.1f} / {ms['median']:.1f}",
        f"{point['images_per_second']:.1f}",
        f"{point['tflops']:.3g}",
        tables.number(share and 100 * share, 1, "%"),
        tables.number(products and 100 * point["tflops"] / products, 0, "%"),
        tables.mib(point["memory"]),
        tables.number(point["first_s"]),
    )


def _best(points):
    """The fastest point of each implementation in bfloat16."""
    found = {}
    for point in points:
        if "error" not in point and point["dtype"] == "bfloat16":
            name = point["label"].split("[")[0]
            best = found.get(name)
            if best is None or point["images_per_second"] > best["images_per_second"]:
                found[name] = point
    for point in found.values():
        share = point["utilisation"]
        text = f"- {point['model']}, {point['task']}, {point['backend']}: the best of "
        text += (
            f"`{point['label'].split('[')[0]}` is `{point['label']}` at batch {point['batch']}, "
        )
        text += f"{point['images_per_second']:.1f} images/s"
        yield text + (f", {share:.1%} of the device's peak." if share else ".")
