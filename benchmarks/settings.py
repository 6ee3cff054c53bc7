"""What one process of a speed benchmark does, as data that fits into a command line."""

import dataclasses
import json
import re

from peers import PEERS

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
    "jit": ("auto", "true", "false"),
    "remat": ("false", "true"),
    "flash": ("auto", "true", "false"),
    "dtype": ("float32", "bfloat16"),
    "gelu": ("erf", "tanh"),
    "optimizer": ("keras", "ours"),
    "memory": ("returned", "kept"),
    "weights": ("float32", "bfloat16"),
}
OF_OURS = ("gelu", "optimizer", "memory", "weights")


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
        raise ValueError(
            f"The patch size of {key}, {patch}, must divide the image size. Received: {image_size}."
        )
    return Architecture(key, width, depth or usual_depth, heads, mlp_dim, patch, image_size)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What one process measures.

    Attributes:
        name: a key of `PEERS`.
        task: `"infer"` or `"train"`.
        jit: XLA on TensorFlow, `torch.compile` on PyTorch; JAX always compiles. `"auto"` is the
            library's own choice.
        remat, flash: rematerialisation and fused attention, where a library has the choice.
        gelu, optimizer, memory, weights: of keras_vit alone. `"ours"` is
            `keras_vit.training.AdamW`, `"kept"` calls `keras_vit.training.keep_memory()`, and
            weights=bfloat16 is the policy bfloat16 instead of mixed_bfloat16.
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
    flash: str = "auto"
    gelu: str = "erf"
    optimizer: str = "keras"
    memory: str = "returned"
    weights: str = "float32"
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
    """`name[option=value,...]` -> the name and a dict of options.

    Raises:
        ValueError: there is no such library, option or value, or not on this backend.
    """
    match = re.fullmatch(r"([\w-]+)(?:\[([^\]]*)\])?", text)
    if not match or match[1] not in PEERS:
        raise ValueError(
            f"Unknown implementation. Received: {text!r}; expected one of {list(PEERS)}, as name "
            "or name[option=value,...]."
        )
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
    return name, options
