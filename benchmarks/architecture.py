"""The sizes that the speed benchmarks know, and what they count: parameters and products.

Free of imports, so that a process that measures another library loads nothing of this one.
"""

import dataclasses

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
    def patches(self):
        return (self.image_size // self.patch_size) ** 2

    @property
    def tokens(self):
        return self.patches + 1

    @property
    def multiply_adds(self):
        """Of the matrix products of one image's forward pass."""
        d, m, t = self.width, self.mlp_dim, self.tokens
        block = 4 * t * d * d + 2 * t * t * d + 2 * t * d * m
        embedding = self.patches * self.patch_size**2 * 3 * d
        return embedding + self.depth * block + d * self.num_classes

    @property
    def parameters(self):
        d, m = self.width, self.mlp_dim
        block = 4 * d * d + 2 * d * m + m + 9 * d  # two LayerNorms, five biases of length d
        embedding = self.patch_size**2 * 3 * d + d + d + self.tokens * d
        return embedding + self.depth * block + 2 * d + (d + 1) * self.num_classes

    def operations(self, task):
        """Floating point operations of one image: a backward pass costs two forward passes."""
        return 2 * self.multiply_adds * (3 if task == "train" else 1)

    def products(self, batch):
        """(rows, inner, columns) of the large matrix products of a block."""
        rows, d, m = batch * self.tokens, self.width, self.mlp_dim
        return [(rows, d, 3 * d), (rows, d, d), (rows, d, m), (rows, m, d)]


def get_architecture(name, image_size=224, depth=None):
    """The `Architecture` of a name such as `S16` or `S/16`."""
    key = name.replace("/", "").replace("ViT_", "").replace("ViT-", "")
    if key not in SIZES:
        raise ValueError(f"Unknown model. Received: {name!r}; expected one of {list(SIZES)}.")
    width, usual_depth, heads, mlp_dim, patch = SIZES[key]
    if image_size % patch or image_size < patch:
        raise ValueError(
            f"The patch size of {key}, {patch}, must divide the image size. Received: {image_size}."
        )
    return Architecture(key, width, depth or usual_depth, heads, mlp_dim, patch, image_size)
