"""Small random towers of images: transformers' CLIP, SigLIP and AIMv2, for record.py.

Run with transformers 5.23 and PyTorch installed: python tests/oracles/make_vision_towers.py OUT
"""

import transformers
from record import command_line, randomize, record

VISION = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 12,
    "patch_size": 4,
}
TEXT = {
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "vocab_size": 4,
    "max_position_embeddings": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WITH_TEXT = {"text_config": TEXT, "projection_dim": 12}


def pooled(model, x):
    return model(pixel_values=x).pooler_output


def embedded(model, x):
    return model.get_image_features(pixel_values=x).pooler_output


def classified(model, x):
    return model(pixel_values=x).logits


def tokens(model, x):
    return model(pixel_values=x).last_hidden_state


def named(config, kind, **options):
    """A model of a class whose config is of another."""
    return getattr(transformers, kind)(getattr(transformers, config)(**options))


def tower(config, kind, forward, size=(12, 12), options=None, noise=0.0, **arguments):
    return config, kind, forward, size, options, noise, arguments


# transformers computes the softmax of CLIP and SigLIP in the precision of the model, and AIMv2's
# norms in float32.
CASES = {
    "clip": tower("CLIPVisionConfig", "CLIPVisionModel", pooled, **VISION),
    "clip_both_towers": tower(
        "CLIPConfig",
        "CLIPModel",
        embedded,
        vision_config={**VISION, "hidden_act": "gelu"},
        **WITH_TEXT,
    ),
    "clip_classes": tower(
        "CLIPConfig",
        "CLIPForImageClassification",
        classified,
        vision_config=VISION,
        num_labels=5,
        **WITH_TEXT,
    ),
    "siglip": tower("SiglipVisionConfig", "SiglipVisionModel", pooled, **VISION),
    "siglip_classes": tower(
        "SiglipConfig",
        "SiglipForImageClassification",
        classified,
        vision_config={**VISION, "hidden_act": "quick_gelu", "num_channels": 1},
        text_config=TEXT,
        num_labels=4,
    ),
    "aimv2": tower(
        "Aimv2VisionConfig",
        "Aimv2VisionModel",
        tokens,
        options={"pool": None},
        noise=2e-6,
        use_head=False,
        **VISION,
    ),
    "aimv2_both_towers": tower(
        "Aimv2Config",
        "Aimv2Model",
        embedded,
        noise=2e-6,
        vision_config={**VISION, "qkv_bias": True, "mlp_bias": True},
        **WITH_TEXT,
    ),
}


def make(out, name, seed):
    config, kind, forward, size, options, noise, arguments = CASES[name]
    model = randomize(named(config, kind, **arguments), seed)
    folder = out / f"tower_{name}"
    model.save_pretrained(folder / "model")
    vision = getattr(model, "vision_model", model)

    def complete(model, x):  # parts that the output does not need have gradients of zero
        return forward(model, x) + 0 * sum(p.sum() for p in model.parameters())

    record(folder, model, complete, vision.encoder.layers, size, seed, options, noise)


if __name__ == "__main__":
    command_line(CASES, make, __doc__)
