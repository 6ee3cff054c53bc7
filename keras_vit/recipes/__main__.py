"""Prints all recipes as Markdown tables: `python -m keras_vit.recipes`."""

from keras_vit.recipes.listing import all_recipes

COLUMNS = {
    "recipe": lambda r: f"`{r.name}`",
    "data": lambda r: f"{r.dataset} {r.train_split}",
    "px": lambda r: str(r.image_size[0]),
    "batch": lambda r: f"{r.batch_size:,}",
    "updates": lambda r: f"{r.steps:,}",
    "warm-up": lambda r: f"{r.warmup_steps:,}",
    "epochs": lambda r: f"{r.passes:.4g}" if r.passes else "",
    "optimizer": lambda r: {"adam": "Adam", "sgdm": f"SGD, momentum {r.momentum:g}"}[r.optimizer],
    "learning rate": lambda r: f"{r.learning_rate:.3g} {r.schedule}",
    "sweep": lambda r: ", ".join(f"{rate:g}" for rate in r.learning_rates),
    "decay": lambda r: f"{r.weight_decay:g}" if r.weight_decay else "",
    "clip": lambda r: f"{r.clip_norm:g}" if r.clip_norm else "",
    "dropout": lambda r: f"{r.dropout:g}" if r.dropout else "",
    "augmentation": lambda r: augmentation(r),
    "loss, head bias": lambda r: r.loss + (f", {r.head_bias:g}" if r.head_bias else ""),
    "averaging": lambda r: f"{r.ema:g}" if r.ema else "",
}


def augmentation(recipe):
    """Crop, mirroring, affine map, RandAugment and mixing in a few words."""
    t = recipe.train
    flip = ["flip"] if t.flip else []
    randaugment = ["RandAugment({}, {})".format(*t.randaugment)] if t.randaugment else []
    mixing = [
        f"{name} {p:g}" for name, p in (("mixup", recipe.mixup), ("CutMix", recipe.cutmix)) if p
    ]
    affine = ["turned, scaled, moved"] if t.affine else []
    return ", ".join([t.crop, *flip, *affine, *randaugment, *mixing])


def markdown(recipes):
    """One table per source, with the source above it; columns that are empty are left out."""
    parts = []
    for source in dict.fromkeys(recipe.source for recipe in recipes):
        group = [recipe for recipe in recipes if recipe.source == source]
        columns = {n: f for n, f in COLUMNS.items() if any(f(recipe) for recipe in group)}
        parts.append(f"### {source}\n")
        parts.append(_line(columns) + "\n" + _line("---" for _ in columns))
        parts.append("\n".join(_line(f(r) for f in columns.values()) for r in group) + "\n")
        parts += [f"- {note}\n" for note in dict.fromkeys(note for r in group for note in r.notes)]
    return "\n".join(parts)


def _line(cells):
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(markdown(all_recipes()))
