"""Writes the rows of keras_vit/weights/catalog.csv that timm publishes of later families.

Everything but the data sets is from timm's own list of its checkpoints; the other rows stay. To be
run with timm installed: python tests/oracles/make_catalog_rows.py
"""

import csv
import pathlib
import re
import sys

import timm
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from timm_names import variant_of

FILE = pathlib.Path(__file__).parents[2] / "keras_vit" / "weights" / "catalog.csv"
LICENCES = {
    **{"apache-2.0": "Apache-2.0", "mit": "MIT", "cc-by-nc-4.0": "CC-BY-NC-4.0"},
    **{"apple-ascl": "Apple-ASCL", "apple-amlr": "Apple-AMLR", "dinov3-license": "DINOv3"},
}
STATISTICS = {0.5: "", 0.485: " imagenet", 0.48145466: " openai", 0.0: " unit", 0.43: " satellite"}
LABELS = {1000: "imagenet-1k", 11821: "imagenet-12k", 21841: "imagenet-22k", 21843: "imagenet-21k"}
DATA = {  # pattern of what a tag says of the data -> the data set
    r".*in1k|dino|mae": "imagenet-1k",
    r".*in12k": "imagenet-12k",
    r".*in21k": "imagenet-21k",
    r".*in22k": "imagenet-22k",
    r"webli|v2_webli|webli_i18n|pali.*": "webli",
    r"openai": "wit-400m",
    r"laion400m(_e32)?|clip": "laion-400m",
    r"laion2b(_plus)?": "laion-2b",
    r"datacompxl": "datacomp-1b",
    r"dfn2b(_s39b)?": "dfn-2b",
    r"dfn5b": "dfn-5b",
    r"apple_mclip2_dfndr2b": "dfndr-2b",
    r"metaclip_400m": "metaclip-400m",
    r"metaclip_(2pt5b|altogether)": "metaclip-2.5b",
    r"metaclip2_worldwide": "metaclip2-worldwide",
    r"merged2b": "merged-2b",
    r"mim_m38m": "merged-38m",
    r"m30m": "merged-30m",
    r"lvd142m": "lvd-142m",
    r"lvd1689m": "lvd-1689m",
    r"sat493m": "sat-493m",
    r"apple_pt(_dist)?": "aimv2-mixture",
    r"fb(_tiling)?": "pe-5.4b",
    r"(indomain_)?pt": "beit3-mixture",
    r"ogvl_.*": "internvl-mixture",
}


def data_sets(tag):
    """(Pre-training, the last data set after it or "") of a tag such as `laion2b_ft_in12k_in1k`."""
    before, _, after = tag.partition("_ft_")
    if tag.startswith("pali"):
        return "webli", "paligemma-2" if tag.startswith("pali2") else "paligemma"
    return _data(before), after and _data(after.split("_")[-1])


def _data(text):
    return next(name for pattern, name in DATA.items() if re.fullmatch(pattern, text))


def row_of(name, others):
    """The row of a checkpoint, which stands under `others` of timm's names too."""
    cfg, (architecture, _, tag) = timm.get_pretrained_cfg(name), name.partition(".")
    with torch.device("meta"):
        options = {"img_size": cfg.input_size[1], "num_classes": cfg.num_classes}
        model = timm.create_model(architecture, **options)
    resize = {"center": "shortest", "squash": "squash"}[cfg.crop_mode]
    stated = f"{resize} {cfg.crop_pct:g} {cfg.interpolation} pillow{STATISTICS[cfg.mean[0]]}"
    pretrained_on, finetuned_on = data_sets(tag)
    quick = any("quickgelu" in other for other in (name, *others))
    return {
        "name": name,
        "family": "timm",
        "url": f"hf://{cfg.hf_hub_id}",
        "variant": variant_of(name),
        "image_size": cfg.input_size[1],
        "num_classes": cfg.num_classes,
        "preprocessing": stated,
        "pretrained_on": pretrained_on,
        "finetuned_on": finetuned_on,
        "licence": LICENCES[cfg.license],
        "parameters": sum(p.numel() for p in model.parameters()),
        "label_set": LABELS.get(cfg.num_classes, ""),
        "overrides": "activation=quick_gelu" if quick else "",
        "aliases": "; ".join(others),
    }


def timm_rows():
    files = {}
    for module in ("vision_transformer", "eva", "beit", "deit"):
        for name in timm.list_models(module=module, pretrained=True):
            if variant_of(name) and timm.get_pretrained_cfg(name).hf_hub_id:
                files.setdefault(timm.get_pretrained_cfg(name).hf_hub_id, []).append(name)
    for repository, names in files.items():
        name = repository.removeprefix("timm/")
        yield row_of(name, [other for other in names if other != name])


if __name__ == "__main__":
    with FILE.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        rows = [r for r in reader if not (r["family"] == "timm" and variant_of(r["name"]))]
    last = max(i for i, row in enumerate(rows) if row["family"] == "timm")
    rows[last + 1 : last + 1] = sorted(timm_rows(), key=lambda row: row["name"])
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, reader.fieldnames, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
