"""Writes later_counts.json: parameters, heads and epsilon of later families' models.

To be run with timm and transformers installed: python tests/oracles/make_later_counts.py
"""

import json
import pathlib
import sys

import timm
import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from timm_names import variant_of

FILE = pathlib.Path(__file__).with_name("later_counts.json")
NOTE = (
    "timm: parameters, heads, epsilon. Parameters are those of a model for 224 pixels without a "
    "head, on PyTorch's meta device; what timm keeps as a head (the projection of a CLIP) is not "
    "counted, and the positions of learned tokens are, which timm's no_embed_class leaves out and "
    "which are zero here."
)
# Towers with their projections, by `CLIPVisionConfig` and the like.
TOWERS = {
    "CLIP-B/32": ("CLIP", {}),
    "CLIP-B/16": ("CLIP", {"patch_size": 16}),
    "CLIP-L/14": ("CLIP", dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                               intermediate_size=4096, patch_size=14, projection_dim=768)),
    "OpenCLIP-H/14": ("CLIP", dict(hidden_size=1280, num_hidden_layers=32, num_attention_heads=16,
                                   intermediate_size=5120, patch_size=14, projection_dim=1024)),
    "MetaCLIP2-S/16": ("MetaClip2", dict(hidden_size=384, num_hidden_layers=12, patch_size=16,
                                         num_attention_heads=6, intermediate_size=1536,
                                         projection_dim=384)),
    "MetaCLIP2-M/16": ("MetaClip2", dict(hidden_size=512, num_hidden_layers=12, patch_size=16,
                                         num_attention_heads=8, intermediate_size=2048,
                                         projection_dim=512)),
}  # fmt: skip


def count(model):
    return sum(p.numel() for p in model.parameters())


def timm_facts():
    names = {}
    for module in ("vision_transformer", "eva", "beit", "deit"):
        for name in timm.list_models(module=module, pretrained=True):
            if "_qkvb" in name or variant_of(name) not in names:  # the whole of it
                names[variant_of(name)] = name
    names.pop(None)
    for variant, name in names.items():
        with torch.device("meta"):
            model = timm.create_model(name.split(".")[0], img_size=224, num_classes=0)
        added = 0
        if getattr(model, "no_embed_class", False) and model.pos_embed is not None:
            added = model.num_prefix_tokens * model.embed_dim
        block = model.blocks[0]
        heads = getattr(block, "attn", block).num_heads
        epsilon = getattr(block, "norm1", None) or block.in_norm
        yield variant, f"{count(model) + added} {heads} {epsilon.eps}"


def tower_counts():
    for variant, (family, options) in TOWERS.items():
        config = getattr(transformers, f"{family}VisionConfig")(**options)
        with torch.device("meta"):
            model = getattr(transformers, f"{family}VisionModelWithProjection")(config)
        yield variant, count(model)


if __name__ == "__main__":
    versions = f"timm {timm.__version__}, transformers {transformers.__version__}"
    facts = {"source": versions, "note": NOTE, "timm": dict(timm_facts())}
    FILE.write_text(json.dumps({**facts, "with_projection": dict(tower_counts())}, indent=0) + "\n")
