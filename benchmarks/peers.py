"""The libraries that the speed benchmarks know: what to install, and how each builds a ViT.

Nothing is imported before a model is built. All models have the same sizes, no dropout and a
linear head that gives logits.
"""

import collections
import contextlib
import dataclasses
import importlib
from collections.abc import Callable

OURS = "keras_vit"


@dataclasses.dataclass(frozen=True)
class Peer:
    """A library.

    Attributes:
        framework: what its models are: `"keras"`, `"torch"` or `"flax"`.
        module: what is imported, before any model is built.
        install: what pip needs to be told.
        backends: what it computes on.
        build: `Settings` -> a model.
        gelu: the form that it has, or None where that is a choice.
    """

    framework: str
    module: str
    install: str
    backends: tuple
    build: Callable
    gelu: str | None = "erf"

    def load(self):
        """Imports the framework and the library."""
        # transformers reads torch when it is asked for a model, keras_vit reads Keras itself.
        frameworks = {"torch": ["torch"], "keras": ["keras"], "flax": ["jax", "flax.linen"]}
        for module in (*frameworks[self.framework], self.module):
            importlib.import_module(module)


def _keras_vit(s):
    import keras_vit

    if s.memory == "kept" and not keras_vit.training.keep_memory():
        raise ValueError("memory=kept needs Linux with the GNU C library.")
    a = s.architecture
    return keras_vit.VisionTransformer(
        image_size=a.image_size,
        patch_size=a.patch_size,
        width=a.width,
        depth=a.depth,
        num_heads=a.num_heads,
        mlp_dim=a.mlp_dim,
        num_classes=a.num_classes,
        gelu=s.gelu,
        remat=s.remat == "true",
    )


def _kerashub(s):
    import keras
    import keras_hub

    _without_remat(s)
    a = s.architecture
    backbone = keras_hub.models.ViTBackbone(
        image_shape=(a.image_size, a.image_size, 3),
        patch_size=a.patch_size,
        num_layers=a.depth,
        num_heads=a.num_heads,
        hidden_dim=a.width,
        mlp_dim=a.mlp_dim,
    )
    token = keras.layers.Lambda(lambda tokens: tokens[:, 0])(backbone.output)
    logits = keras.layers.Dense(a.num_classes)(token)
    return keras.Model(backbone.input, logits)


def _vitkeras(s):
    from vit_keras import vit

    _without_remat(s)
    a = s.architecture
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


KIMM_NAMES = {"Ti": "Tiny", "S": "Small", "B": "Base", "L": "Large"}


def _kimm(s):
    import kimm

    _without_remat(s)
    a = s.architecture
    name = KIMM_NAMES.get(a.name[:-2])
    builder = getattr(kimm.models, f"VisionTransformer{name}{a.patch_size}", None)
    if builder is None:
        raise ValueError(f"kimm has no {a.name}; leave it out of --peers.")
    if a.depth != builder.depth:
        raise ValueError(f"kimm builds {a.name} with {builder.depth} blocks only.")
    return builder(
        input_shape=(a.image_size, a.image_size, 3),
        include_preprocessing=False,
        dropout_rate=0.0,
        classes=a.num_classes,
        classifier_activation="linear",
        weights=None,
    )


def _timm(s):
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


def _huggingface(s):
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


def _torchvision(s):
    from torchvision.models.vision_transformer import VisionTransformer

    _without_remat(s)
    a = s.architecture
    return VisionTransformer(
        image_size=a.image_size,
        patch_size=a.patch_size,
        num_layers=a.depth,
        num_heads=a.num_heads,
        hidden_dim=a.width,
        mlp_dim=a.mlp_dim,
        num_classes=a.num_classes,
    )


def _flax(s):
    from vit_jax.models_vit import VisionTransformer

    _without_remat(s)
    a = s.architecture
    transformer = {
        "num_layers": a.depth,
        "num_heads": a.num_heads,
        "mlp_dim": a.mlp_dim,
        "dropout_rate": 0.0,
        "attention_dropout_rate": 0.0,
    }
    patches = collections.namedtuple("Patches", "size")((a.patch_size, a.patch_size))
    return VisionTransformer(a.num_classes, patches, transformer, a.width)


def _without_remat(s):
    if s.remat == "true":
        raise ValueError(f"{s.name} has no rematerialisation; leave remat=true out.")


KERAS_BACKENDS = ("torch", "tensorflow", "jax")
PEERS = {
    OURS: Peer("keras", "keras_vit", "keras3-vit", KERAS_BACKENDS, _keras_vit, None),
    "kerashub": Peer("keras", "keras_hub", "keras-hub", KERAS_BACKENDS, _kerashub),
    "vitkeras": Peer(
        "keras",
        "vit_keras",
        "vit-keras validators opencv-python-headless",
        ("tensorflow",),
        _vitkeras,
    ),
    "kimm": Peer("keras", "kimm", "kimm", KERAS_BACKENDS, _kimm),
    "timm": Peer("torch", "timm", "timm", ("torch",), _timm),
    "hf": Peer("torch", "transformers", "transformers", ("torch",), _huggingface),
    "torchvision": Peer("torch", "torchvision", "torchvision", ("torch",), _torchvision),
    "flax": Peer(
        "flax",
        "vit_jax.models_vit",
        "git+https://github.com/google-research/vision_transformer optax",
        ("jax",),
        _flax,
        "tanh",
    ),
}


def peers_on(backend):
    """Names of the peers on a backend that are compared without being asked for."""
    left_out = () if backend == "tensorflow" else ("kimm",)
    return [
        name
        for name, peer in PEERS.items()
        if backend in peer.backends and name not in (OURS, *left_out)
    ]


def get_peer(name, backend):
    """The `Peer` of a name that computes on a backend."""
    if name not in PEERS:
        raise ValueError(f"Unknown implementation. Received: {name!r}; expected {list(PEERS)}.")
    if backend not in PEERS[name].backends:
        raise ValueError(f"{name} computes on {PEERS[name].backends} only, not on {backend}.")
    return PEERS[name]


def why_missing(name, error):
    """What to say of an `ImportError`: what is missing, and how to install it."""
    peer = PEERS[name]
    missing = getattr(error, "name", None)
    if isinstance(error, ModuleNotFoundError) and missing:
        is_backend = missing in ("torch", "tensorflow", "jax")
        install = missing if is_backend else peer.install
        return f"not installed (no module {missing!r}): pip install {install}"
    with contextlib.suppress(IndexError):
        return f"cannot be imported: {str(error).splitlines()[0]}"
    return "cannot be imported"
