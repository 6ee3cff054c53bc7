"""Small random models of the authors' own code: DINOv2, DINOv3, Perception Encoder, OpenCLIP.

Run with their repositories (facebookresearch/dinov2, /dinov3 and /perception_models,
mlfoundations/open_clip) and timm on PYTHONPATH: python tests/oracles/make_official_towers.py OUT
"""

import functools
import json

import safetensors.torch
import torch
from record import command_line, randomize, record

SIZE = 8
TEXT = {"context_length": 2, "vocab_size": 4, "width": 8, "heads": 1, "layers": 1}


def dinov2():
    """Registers, a gated MLP, blocks in chunks."""
    from dinov2.layers import MemEffAttention, NestedTensorBlock
    from dinov2.models.vision_transformer import DinoVisionTransformer

    model = DinoVisionTransformer(
        img_size=SIZE,
        patch_size=4,
        embed_dim=16,
        depth=2,
        num_heads=2,
        mlp_ratio=2,
        init_values=1.0,
        ffn_layer="swiglu",
        num_register_tokens=2,
        block_chunks=2,
        block_fn=functools.partial(NestedTensorBlock, attn_class=MemEffAttention),
    )
    blocks = [block for i, chunk in enumerate(model.blocks) for block in chunk[i:]]
    return model, model, blocks, {"num_heads": 2}, None


def dinov3():
    """Storage tokens, a masked bias, a gated MLP."""
    from dinov3.models.vision_transformer import DinoVisionTransformer

    model = DinoVisionTransformer(
        patch_size=4,
        embed_dim=16,
        depth=2,
        num_heads=2,
        ffn_ratio=2,
        layerscale_init=1.0,
        norm_layer="layernormbf16",
        ffn_layer="swiglu",
        n_storage_tokens=2,
        mask_k_bias=True,
        pos_embed_rope_dtype="fp32",
        untie_global_and_local_cls_norm=True,
    )
    model.init_weights()
    return model, model, model.blocks, {"image_size": SIZE}, None


def perception_encoder():
    """Rotary positions beside learned ones, attention pooling of class token and patches."""
    from core.vision_encoder.pe import VisionTransformer

    model = VisionTransformer(
        patch_size=4,
        width=16,
        layers=2,
        heads=2,
        mlp_ratio=2,
        image_size=SIZE,
        use_cls_token=True,
        output_dim=12,
        attn_pooler_heads=4,
    )
    options = {"num_heads": 2, "pool_heads": 4}
    return model, model, model.transformer.resblocks, options, None


def open_clip():
    """A tower of OpenCLIP's own, without its config's defaults."""
    import open_clip

    vision = {
        "layers": 2,
        "width": 16,
        "head_width": 8,
        "patch_size": 4,
        "image_size": SIZE,
        "mlp_ratio": 2,
        "ls_init_value": 0.1,
        "pool_type": "avg",
        "final_ln_after_pool": True,
    }
    config = {"embed_dim": 12, "vision_cfg": vision, "text_cfg": TEXT, "quick_gelu": True}
    model = open_clip.CLIP(**config)
    return model, model.visual, model.visual.transformer.resblocks, {}, config


def open_clip_trunk():
    """A model of timm with a projection."""
    import open_clip

    arguments = {"img_size": SIZE, "patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2}
    vision = {
        "timm_model_name": "vit_base_patch32_siglip_256",
        "timm_pool": "map",
        "timm_proj": "linear",
        "image_size": SIZE,
        "timm_model_kwargs": arguments,
    }
    config = {"embed_dim": 12, "vision_cfg": vision, "text_cfg": TEXT}
    model = open_clip.CustomTextCLIP(**config)
    return model, model.visual, model.visual.trunk.blocks, {}, config


CASES = {
    "dinov2": (dinov2, 0.0),
    "dinov3": (dinov3, 0.0),
    "perception_encoder": (perception_encoder, 1e-7),  # its angles are in float32
    "open_clip": (open_clip, 0.0),
    "open_clip_trunk": (open_clip_trunk, 0.0),
}


def make(out, name, seed):
    build, noise = CASES[name]
    model, tower, blocks, options, config = build()
    randomize(model, seed)
    folder = out / f"tower_{name}"
    (folder / "model").mkdir(parents=True, exist_ok=True)
    state = {name: value.contiguous() for name, value in model.state_dict().items()}
    safetensors.torch.save_file(state, folder / "model" / "model.safetensors")
    if config:
        said = {"model_cfg": config, "preprocess_cfg": {"mean": [0.4] * 3, "std": [0.3] * 3}}
        path = folder / "model" / "open_clip_config.json"
        path.write_text(json.dumps(said, indent=1) + "\n")
    if name == "dinov3":  # positions in the precision of the model
        model.rope_embed.dtype = torch.float64
        model.rope_embed.periods = model.rope_embed.periods.double()
        model.rope_embed._init_weights()

    def complete(model, x):  # parts that the output does not need have gradients of zero
        return tower(x) + 0 * sum(p.sum() for p in model.parameters())

    record(folder, model, complete, blocks, (SIZE, SIZE), seed, options, noise)
    gradients = safetensors.torch.load_file(folder / "gradients.safetensors")
    gradients.update({name: a for name, a in state.items() if name not in gradients})
    safetensors.torch.save_file(gradients, folder / "gradients.safetensors")


if __name__ == "__main__":
    command_line(CASES, make, __doc__)
