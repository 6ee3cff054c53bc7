"""What is compared: models, variations, and the libraries, with how each builds a ViT.

A peer is added by one function of `Settings` that imports the library, returns its model with
logits and without dropout, and is registered by `@peer`:

    @peer("torch", "timm", "timm", ("torch",))  # framework, module, what pip installs, backends
    def timm(s): ...

Nothing is imported before a model is built.
"""

import collections
import dataclasses
import json
import re

BACKENDS = ("torch", "tensorflow", "jax")
GOOGLE = "https://github.com/google-research/vision_transformer"
OURS = "keras_vit"
# Width, depth, heads, MLP units, patch size.
SIZES = {
    "Ti16": (192, 12, 3, 768, 16),
    "S32": (384, 12, 6, 1536, 32),
    "S16": (384, 12, 6, 1536, 16),
    "B32": (768, 12, 12, 3072, 32),
    "B16": (768, 12, 12, 3072, 16),
    "L32": (1024, 24, 16, 4096, 32),
    "L16": (1024, 24, 16, 4096, 16),
    "H14": (1280, 32, 16, 5120, 14),
}
OPTIONS = {  # what may stand in the brackets of `keras_vit[jit=true,gelu=erf]`
    "jit": ("auto", "true", "false", "max", "whole"),
    "remat": ("false", "true"),
    "dtype": ("float32", "bfloat16"),
    "gelu": ("erf", "tanh"),
    "optimizer": ("keras", "ours"),
    "weights": ("float32", "bfloat16"),
    "tf32": ("false", "true"),
    "parts": ("1", "2", "4", "8", "16"),
}
OF_OURS = ("gelu", "optimizer", "weights", "parts")


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A ViT with a class token, learned positions and a linear head."""

    name: str
    width: int
    depth: int
    num_heads: int
    mlp_dim: int
    patch_size: int
    image_size: int = 224
    num_classes: int = 1000

    @property
    def tokens(self):
        return (self.image_size // self.patch_size) ** 2 + 1

    @property
    def parameters(self):
        d, m = self.width, self.mlp_dim
        block = 4 * d * d + 2 * d * m + m + 9 * d  # two LayerNorms, five biases of length d
        embedding = self.patch_size**2 * 3 * d + d + d + self.tokens * d
        return embedding + self.depth * block + 2 * d + (d + 1) * self.num_classes

    def operations(self, task):
        """Floating point operations of one image in its matrix products.

        A multiplication and an addition are two operations. A backward pass costs two forward
        passes; what rematerialisation computes again is not counted.
        """
        d, m, t = self.width, self.mlp_dim, self.tokens
        block = 4 * t * d * d + 2 * t * t * d + 2 * t * d * m
        embedding = (t - 1) * self.patch_size**2 * 3 * d
        forward = embedding + self.depth * block + d * self.num_classes
        return 2 * forward * (3 if task == "train" else 1)


def get_architecture(name, image_size=224, depth=None):
    """The `Architecture` of a name such as `S16` or `S/16`."""
    key = name.replace("/", "")
    if key not in SIZES:
        raise ValueError(f"Unknown model. Received: {name!r}; expected one of {list(SIZES)}.")
    width, usual_depth, heads, mlp_dim, patch = SIZES[key]
    if image_size < patch or image_size % patch:
        text = f"The patch size of {key}, {patch}, must divide the image size. Received: "
        raise ValueError(f"{text}{image_size}.")
    return Architecture(key, width, depth or usual_depth, heads, mlp_dim, patch, image_size)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What one process measures.

    Attributes:
        name: a key of `PEERS`.
        task: `"infer"` or `"train"`.
        jit: XLA on TensorFlow, `torch.compile` on PyTorch; JAX always compiles. `"auto"` is the
            library's own choice, `"max"` PyTorch's mode max-autotune, `"whole"` has a model of
            Keras compiled by `torch.compile(model)`.
        remat: rematerialisation, where a library has the choice.
        gelu, optimizer, weights: of keras_vit alone. `"ours"` is `keras_vit.training.AdamW`, and
            weights=bfloat16 is the policy bfloat16 instead of mixed_bfloat16.
        parts: calls that share a batch and accumulate its gradients; of keras_vit alone.
        tf32: whether float32 products on a GPU are those of tensor cores.
        resident: data stay on the device, and steps are waited for at the end of a turn only.
    """

    name: str
    backend: str
    architecture: Architecture
    task: str = "infer"
    batch: int = 4
    dtype: str = "float32"
    jit: str = "auto"
    remat: str = "false"
    gelu: str = "erf"
    optimizer: str = "keras"
    weights: str = "float32"
    tf32: str = "false"
    parts: str = "1"
    resident: bool = False

    @property
    def label(self):
        """The name with every option that is not the default."""
        changed = [f"{o}={getattr(self, o)}" for o in OPTIONS if getattr(self, o) != OPTIONS[o][0]]
        return f"{self.name}[{','.join(changed)}]" if changed else self.name

    @property
    def operations(self):
        """Floating point operations of a step."""
        return self.batch * self.architecture.operations(self.task)

    def replace(self, **changes):
        return dataclasses.replace(self, **changes)

    def to_json(self):
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text):
        values = json.loads(text)
        return cls(**{**values, "architecture": Architecture(**values["architecture"])})


def parse_spec(text, backend):
    """`name[option=value,...]` -> the name and a dict of options; ValueError if there is none."""
    match = re.fullmatch(r"([\w-]+)(?:\[([^\]]*)\])?", text)
    if not match or match[1] not in PEERS:
        expected = f"expected one of {list(PEERS)}, as name or name[option=value,...]."
        raise ValueError(f"Unknown implementation. Received: {text!r}; {expected}")
    name, options = match[1], {}
    if backend not in PEERS[name].backends:
        raise ValueError(f"{name} computes on {PEERS[name].backends} only, not on {backend}.")
    allowed = {o: v for o, v in OPTIONS.items() if name == OURS or o not in OF_OURS}
    for part in filter(None, (match[2] or "").split(",")):
        option, _, value = part.partition("=")
        if value not in allowed.get(option, ()):
            choices = "; ".join(f"{o}={'|'.join(values)}" for o, values in allowed.items())
            raise ValueError(f"Unknown option. Received: {part!r} in {text!r}; expected {choices}.")
        options[option] = value
    if options.get("remat") == "true" and name not in (OURS, "timm"):
        raise ValueError(f"{name} has no rematerialisation; leave remat=true out.")
    return name, options


# The framework of a library's models, its module, what pip installs, its backends.
Peer = collections.namedtuple("Peer", "framework module install backends build")
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

    sizes = dataclasses.asdict(s.architecture)
    del sizes["name"]
    return keras_vit.VisionTransformer(**sizes, gelu=s.gelu, remat=s.remat == "true")


@peer("torch", "timm", "timm", ("torch",))
def timm(s):
    from timm.models.vision_transformer import VisionTransformer

    a = s.architecture
    sizes = {"img_size": a.image_size, "patch_size": a.patch_size, "embed_dim": a.width}
    blocks = {"depth": a.depth, "num_heads": a.num_heads, "mlp_ratio": a.mlp_dim / a.width}
    model = VisionTransformer(**sizes, **blocks, num_classes=a.num_classes)
    model.set_grad_checkpointing(s.remat == "true")
    return model


@peer("keras", "keras_hub", "keras-hub")
def kerashub(s):
    import keras
    import keras_hub

    a = s.architecture
    sizes = {"image_shape": (a.image_size, a.image_size, 3), "patch_size": a.patch_size}
    blocks = {"num_layers": a.depth, "num_heads": a.num_heads, "mlp_dim": a.mlp_dim}
    backbone = keras_hub.models.ViTBackbone(**sizes, **blocks, hidden_dim=a.width)
    token = keras.layers.Lambda(lambda tokens: tokens[:, 0])(backbone.output)
    return keras.Model(backbone.input, keras.layers.Dense(a.num_classes)(token))


@peer("keras", "kimm", "kimm")
def kimm(s):
    import kimm

    a = s.architecture
    name = {"Ti": "Tiny", "S": "Small", "B": "Base", "L": "Large"}.get(a.name[:-2])
    builder = getattr(kimm.models, f"VisionTransformer{name}{a.patch_size}", None)
    if builder is None or builder.depth != a.depth:
        raise ValueError(f"kimm has no {a.name} of {a.depth} blocks; leave it out of --peers.")
    sizes = {"input_shape": (a.image_size, a.image_size, 3), "classes": a.num_classes}
    logits = {"include_preprocessing": False, "classifier_activation": "linear"}
    return builder(**sizes, **logits, dropout_rate=0.0, weights=None)


@peer("keras", "vit_keras", "vit-keras validators opencv-python-headless", ("tensorflow",))
def vitkeras(s):
    from vit_keras import vit

    a = s.architecture
    sizes = {"image_size": a.image_size, "patch_size": a.patch_size, "hidden_size": a.width}
    blocks = {"num_layers": a.depth, "num_heads": a.num_heads, "mlp_dim": a.mlp_dim}
    return vit.build_model(**sizes, **blocks, classes=a.num_classes, dropout=0.0, name="vit")


@peer("flax", "vit_jax.models_vit", f"git+{GOOGLE} optax", ("jax",))
def flax(s):
    """The authors' own model; its GELU is the tanh form."""
    from vit_jax.models_vit import VisionTransformer

    a = s.architecture
    rates = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0}
    transformer = {"num_layers": a.depth, "num_heads": a.num_heads, "mlp_dim": a.mlp_dim, **rates}
    patches = collections.namedtuple("Patches", "size")((a.patch_size, a.patch_size))
    return VisionTransformer(a.num_classes, patches, transformer, a.width)
