"""Small random models of Hugging Face transformers 5.23, each with what it computes.

    python tests/oracles/make_transformers.py OUT [--seed N] [--case NAME]

writes a folder hf_NAME for each case below, as record.py says.
"""

import numpy as np
import torch
import transformers
from record import command_line, randomize, record
from transformers.models.beit import modeling_beit

SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": 12,
    "patch_size": 4,
    "num_labels": 5,
}
BEIT = {"layer_scale_init_value": 0.3, "use_relative_position_bias": True}
PROCESSORS = {
    "dinov2": ("BitImageProcessor", {"size": {"shortest_edge": 14}, "crop_size": 12}),
    "dinov3": ("DINOv3ViTImageProcessor", {"size": {"height": 12, "width": 12}}),
    "beit": ("BeitImageProcessor", {"size": {"height": 12, "width": 12}}),
    "data2vec": ("BeitImageProcessor", {"size": {"height": 12, "width": 12}}),
    "deit": ("DeiTImageProcessor", {"size": {"height": 14, "width": 14}, "crop_size": 12}),
}
# name: class, its configuration, what of the outputs is compared, options of from_checkpoint.
CASES = {
    "dinov2": ("Dinov2ForImageClassification", {"mlp_ratio": 2, "layerscale_value": 0.5}),
    "dinov2_swiglu": ("Dinov2Model", {"use_swiglu_ffn": True, "mlp_ratio": 1, "qkv_bias": False}),
    "dinov2_registers": (
        "Dinov2WithRegistersForImageClassification",
        {"num_register_tokens": 3, "mlp_ratio": 2},
    ),
    "dinov3": ("DINOv3ViTModel", {"num_register_tokens": 2, "image_size": [8, 12]}),
    "dinov3_gated": (
        "DINOv3ViTModel",
        {"use_gated_mlp": True, "hidden_act": "silu", "rope_theta": 50.0, "key_bias": True},
    ),
    "beit": ("BeitForImageClassification", BEIT),
    "beit_shared": (
        "BeitModel",
        {
            "use_shared_relative_position_bias": True,
            "use_mean_pooling": False,
            "layer_scale_init_value": 0.0,
        },
    ),
    "data2vec": ("Data2VecVisionForImageClassification", {**BEIT, "hidden_act": "gelu_new"}),
    "deit": ("DeiTForImageClassificationWithTeacher", {"image_size": [12, 8]}),
    "deit_one_head": ("DeiTForImageClassification", {}),
    "deit_pooler": ("DeiTModel", {"pooler_output_size": 12, "qkv_bias": False}),
    "ijepa": ("IJepaForImageClassification", {"hidden_act": "silu"}),
    "mae": (
        "ViTMAEForPreTraining",
        {"decoder_num_hidden_layers": 1, "decoder_hidden_size": 16, "decoder_intermediate_size": 8},
    ),
}
# Outputs at another size of the images, where positions are resampled.
RESIZED = {
    "dinov2": (8, 24),
    "dinov2_registers": (12, 20),
    "dinov3": (12, 24),
    "beit": (24, 12),
}


def build(kind, seed, **config):
    """A model of a class with random weights, and the size of its images."""
    model_class = getattr(transformers, kind)
    config = model_class.config_class(**{**SMALL, **config})
    model = randomize(model_class(config), seed)
    size = config.image_size
    return model, (size, size) if isinstance(size, int) else tuple(size)


def forward(model, images):
    """Logits, or else what a pooler makes of the tokens, or else the class token."""
    if model.config.model_type == "vit_mae":
        encoder = getattr(model, "vit", model)
        encoder.config.mask_ratio = 0.0
        count = encoder.embeddings.patch_embeddings.num_patches
        order = torch.arange(count, dtype=images.dtype).expand(len(images), count)
        return encoder(images, noise=order).last_hidden_state[:, 0]
    outputs = model(images)
    for name in ("logits", "pooler_output"):
        if outputs.get(name) is not None:
            return outputs[name]
    return outputs.last_hidden_state[:, 0]


def blocks_of(model):
    """The modules of the encoder's blocks."""
    named = model.named_modules()
    return next(list(m) for name, m in named if name.split(".")[-1] in ("layer", "layers"))


def make(out, name, seed):
    kind, config = CASES[name]
    model, image_size = build(kind, seed, **config)
    folder = out / f"hf_{name}"
    model.save_pretrained(folder / "model")
    processor, settings = PROCESSORS.get(name.split("_")[0], ("ViTImageProcessor", {}))
    getattr(transformers, processor)(**settings).save_pretrained(folder / "model")
    for parameter in model.parameters():
        parameter.requires_grad_(True)  # also the fixed positions of MAE
    # DINOv3 computes its angles in float32.
    noise = 1e-6 if "rope_theta" in model.config.to_dict() else 0.0
    record(folder, model, forward, blocks_of(model), image_size, seed, noise=noise)
    if name in RESIZED:
        record_resized(folder, model, RESIZED[name], seed)
    if name == "beit":
        record_wide(folder, seed)


def record_resized(folder, model, image_size, seed):
    """Images of another size and the output for them, in resized.npz."""
    images = np.random.default_rng(seed).uniform(-1, 1, (1, *image_size, 3)).astype("float32")
    with torch.no_grad():
        output = forward(model, torch.tensor(images.transpose(0, 3, 1, 2)).double())
    np.savez_compressed(folder / "resized.npz", input=images, output=output.numpy())


def record_wide(folder, seed):
    """Biases for a grid of 2 x 3 patches, and what is added to the scores, in wide.npz."""
    config = transformers.BeitConfig(**{**SMALL, "image_size": [8, 12]})
    layer = randomize(modeling_beit.BeitRelativePositionBias(config), seed)
    with torch.no_grad():
        bias = layer((2, 3))[0].numpy()
    table = layer.relative_position_bias_table.detach().numpy()
    np.savez_compressed(folder / "wide.npz", table=table, bias=bias)


if __name__ == "__main__":
    command_line(CASES, make, __doc__)
