"""The libraries that are compared, and how each builds a ViT.

A peer is added by one function of `Settings` that imports the library, returns its model with
logits and without dropout, and is registered by `@peer`:

    @peer("torch", "timm", "timm", ("torch",))  # framework, module, what pip installs, backends
    def timm(s): ...

Nothing is imported before a model is built.
"""

import collections
import dataclasses
from collections.abc import Callable

BACKENDS = ("torch", "tensorflow", "jax")
GOOGLE = "https://github.com/google-research/vision_transformer"


@dataclasses.dataclass(frozen=True)
class Peer:
    """A library: the framework of its models, its module, what pip installs, its backends."""

    framework: str
    module: str
    install: str
    backends: tuple
    build: Callable


PEERS = {}


def peer(framework, module, install, backends=BACKENDS):
    """Registers a builder under the name of its function."""

    def register(build):
        PEERS[build.__name__] = Peer(framework, module, install, backends, build)
        return build

    return register


@peer("keras", "keras_vit", "keras3-vit")
def keras_vit(s):
    import keras_vit

    if s.memory == "kept" and not keras_vit.training.keep_memory():
        raise ValueError("memory=kept needs Linux with the GNU C library.")
    sizes = dataclasses.asdict(s.architecture)
    del sizes["name"]
    return keras_vit.VisionTransformer(**sizes, gelu=s.gelu, remat=s.remat == "true")


@peer("torch", "timm", "timm", ("torch",))
def timm(s):
    import timm.layers
    from timm.models.vision_transformer import VisionTransformer

    a = s.architecture
    if s.flash != "auto":
        timm.layers.set_fused_attn(s.flash == "true")
    model = VisionTransformer(
        img_size=a.image_size,
        patch_size=a.patch_size,
        embed_dim=a.width,
        depth=a.depth,
        num_heads=a.num_heads,
        mlp_ratio=a.mlp_dim / a.width,
        num_classes=a.num_classes,
    )
    model.set_grad_checkpointing(s.remat == "true")
    return model


@peer("torch", "transformers", "transformers", ("torch",))
def transformers(s):
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    a = s.architecture
    config = ViTConfig(
        hidden_size=a.width,
        num_hidden_layers=a.depth,
        num_attention_heads=a.num_heads,
        intermediate_size=a.mlp_dim,
        image_size=a.image_size,
        patch_size=a.patch_size,
        num_labels=a.num_classes,
        attn_implementation="eager" if s.flash == "false" else "sdpa",
    )

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = ViTForImageClassification(config)

        def forward(self, images):
            return self.model(pixel_values=images).logits

    model = Logits()
    if s.remat == "true":
        model.model.gradient_checkpointing_enable()
    return model


@peer("keras", "keras_hub", "keras-hub")
def kerashub(s):
    import keras
    import keras_hub

    a = _without_remat(s)
    backbone = keras_hub.models.ViTBackbone(
        image_shape=(a.image_size, a.image_size, 3),
        patch_size=a.patch_size,
        num_layers=a.depth,
        num_heads=a.num_heads,
        hidden_dim=a.width,
        mlp_dim=a.mlp_dim,
    )
    token = keras.layers.Lambda(lambda tokens: tokens[:, 0])(backbone.output)
    return keras.Model(backbone.input, keras.layers.Dense(a.num_classes)(token))


@peer("keras", "kimm", "kimm")
def kimm(s):
    import kimm

    a = _without_remat(s)
    name = {"Ti": "Tiny", "S": "Small", "B": "Base", "L": "Large"}.get(a.name[:-2])
    builder = getattr(kimm.models, f"VisionTransformer{name}{a.patch_size}", None)
    if builder is None or builder.depth != a.depth:
        raise ValueError(f"kimm has no {a.name} of {a.depth} blocks; leave it out of --peers.")
    return builder(
        input_shape=(a.image_size, a.image_size, 3),
        include_preprocessing=False,
        dropout_rate=0.0,
        classes=a.num_classes,
        classifier_activation="linear",
        weights=None,
    )


@peer("keras", "vit_keras", "vit-keras validators opencv-python-headless", ("tensorflow",))
def vitkeras(s):
    from vit_keras import vit

    a = _without_remat(s)
    return vit.build_model(
        image_size=a.image_size,
        patch_size=a.patch_size,
        num_layers=a.depth,
        hidden_size=a.width,
        num_heads=a.num_heads,
        mlp_dim=a.mlp_dim,
        classes=a.num_classes,
        dropout=0.0,
        name="vit",
    )


@peer("flax", "vit_jax.models_vit", f"git+{GOOGLE} optax", ("jax",))
def flax(s):
    """The authors' own model; its GELU is the tanh form."""
    from vit_jax.models_vit import VisionTransformer

    a = _without_remat(s)
    rates = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0}
    transformer = {"num_layers": a.depth, "num_heads": a.num_heads, "mlp_dim": a.mlp_dim, **rates}
    patches = collections.namedtuple("Patches", "size")((a.patch_size, a.patch_size))
    return VisionTransformer(a.num_classes, patches, transformer, a.width)


def _without_remat(s):
    if s.remat == "true":
        raise ValueError(f"{s.name} has no rematerialisation; leave remat=true out.")
    return s.architecture
