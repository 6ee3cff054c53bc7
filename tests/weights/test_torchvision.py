"""torchvision's Vision Transformers, beside the same network written in PyTorch's own layers."""

import collections
import functools

import numpy as np
import pytest

import keras_vit
from keras_vit.layers.resample import resize_grid
from tests.support import assert_close, forward, images, values
from tests.weights.stored import assert_same_weights, refused

torch = pytest.importorskip("torch")


class Block(torch.nn.Module):
    """`torchvision.models.vision_transformer.EncoderBlock`, without dropout."""

    def __init__(self, width, heads, hidden, norm):
        super().__init__()
        self.ln_1 = norm(width)
        self.self_attention = torch.nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2 = norm(width)
        layers = [torch.nn.Linear(width, hidden), torch.nn.GELU(), torch.nn.Dropout(0.0)]
        self.mlp = torch.nn.Sequential(*layers, torch.nn.Linear(hidden, width))

    def forward(self, x):
        y = self.ln_1(x)
        y, _ = self.self_attention(y, y, y, need_weights=False)
        x = x + y
        return x + self.mlp(self.ln_2(x))


class Reference(torch.nn.Module):
    """`torchvision.models.VisionTransformer`: its names, its order, its constants."""

    def __init__(self, size=32, patch=8, width=48, depth=2, heads=4, hidden=80, pre_logits=None):
        super().__init__()
        norm = functools.partial(torch.nn.LayerNorm, eps=1e-6)
        self.conv_proj = torch.nn.Conv2d(3, width, patch, patch)
        self.class_token = torch.nn.Parameter(torch.zeros(1, 1, width))
        self.encoder = torch.nn.Module()
        count = (size // patch) ** 2 + 1
        self.encoder.pos_embedding = torch.nn.Parameter(torch.zeros(1, count, width))
        blocks = [(f"encoder_layer_{i}", Block(width, heads, hidden, norm)) for i in range(depth)]
        self.encoder.layers = torch.nn.Sequential(collections.OrderedDict(blocks))
        self.encoder.ln = norm(width)
        rows = [("head", torch.nn.Linear(pre_logits or width, 5))]
        if pre_logits:
            layers = [torch.nn.Linear(width, pre_logits), torch.nn.Tanh()]
            rows = [*zip(("pre_logits", "act"), layers), *rows]
        self.heads = torch.nn.Sequential(collections.OrderedDict(rows))
        generator = torch.Generator().manual_seed(0)
        for p in self.parameters():
            p.data = torch.randn(p.shape, generator=generator) * 0.2

    def forward(self, x):
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1)
        x = self.encoder.ln(self.encoder.layers(x + self.encoder.pos_embedding))
        return self.heads(x[:, 0])


def saved(folder, tensors, name="model.pth"):
    torch.save(tensors, folder / name)
    return folder / name


def expected_of(reference, x):
    with torch.no_grad():
        return reference.eval()(torch.tensor(x.transpose(0, 3, 1, 2))).numpy()


@pytest.mark.parametrize("pre_logits", [None, 24])
def test_outputs(tmp_path, pre_logits):
    reference = Reference(pre_logits=pre_logits)
    model = keras_vit.from_checkpoint(saved(tmp_path, reference.state_dict()), num_heads=4)
    x = images((3, 32, 32, 3))
    assert_close(forward(model, x), expected_of(reference, x), 2e-5)
    v = model.variant
    assert (model.load_report.family, v.gelu, v.epsilon) == ("torchvision", "erf", 1e-6)
    assert len(model.load_report.loaded) == len(model.weights)


@pytest.mark.any_backend
def test_names_of_older_versions_and_wrappers(tmp_path):
    tensors = Reference().state_dict()
    model = keras_vit.from_checkpoint(saved(tmp_path, tensors), num_heads=4)
    older = {
        name.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2."): tensor
        for name, tensor in tensors.items()
    }
    assert older.keys() != tensors.keys()
    wrapped = {"state_dict": {f"model.{name}": tensor for name, tensor in older.items()}}
    for content in (older, wrapped):
        other = keras_vit.from_checkpoint(saved(tmp_path, content), num_heads=4)
        assert_same_weights(model, other)


@pytest.mark.any_backend
def test_another_resolution(tmp_path):
    """`interpolate_embeddings` of torchvision keeps the corners where they are."""
    tensors = Reference().state_dict()
    path = saved(tmp_path, tensors)
    position = tensors["encoder.pos_embedding"][:, 1:].double()
    for side in (3, 4, 7):
        grid = position.transpose(1, 2).reshape(1, 48, 4, 4)
        how = {"mode": "bicubic", "align_corners": True}
        resized = torch.nn.functional.interpolate(grid, size=side, **how)
        expected = resized.flatten(2).transpose(1, 2).numpy()
        model = keras_vit.from_checkpoint(path, num_heads=4, image_size=8 * side)
        loaded = values(model)["patch_encoder/position/embedding"]
        assert_close(loaded[:, 1:], expected, 1e-6)
        assert_close(loaded[:, :1], tensors["encoder.pos_embedding"][:, :1], 0)
    table = np.random.default_rng(0).normal(size=(6, 3))
    assert_close(resize_grid(table, (2, 3), (2, 3), "bicubic_align_corners"), table, 1e-12)
    assert resize_grid(table, (2, 3), (1, 1), "bicubic_align_corners").shape == (1, 3)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "name, width, patch, size, crop, interpolation",
    [
        ("vit_b_16-c867db91.pth", 768, 16, 224, 224 / 256, "bilinear"),
        ("vit_l_16-852ce7e3.pth", 1024, 16, 224, 224 / 242, "bilinear"),
        ("vit_b_16_swag-9ac1b537.pth", 768, 16, 384, 1.0, "bicubic"),
        ("renamed.pth", 768, 16, 384, 1.0, "bicubic"),
        ("renamed.pth", 1280, 14, 518, 1.0, "bicubic"),
        ("vit_b_16_lc_swag-4e70ced5.pth", 768, 16, 224, 1.0, "bicubic"),
        ("mine.pth", 48, 8, 64, 224 / 256, "bilinear"),
    ],
)
def test_how_images_are_prepared(tmp_path, name, width, patch, size, crop, interpolation):
    reference = Reference(size, patch, width, depth=1, heads=4, hidden=8)
    path = saved(tmp_path, reference.state_dict(), name)
    recipe = keras_vit.from_checkpoint(path, num_heads=4).preprocessing
    assert (recipe.crop_fraction, recipe.interpolation) == (crop, interpolation)
    assert (recipe.resize, recipe.library) == ("shortest", "pillow")
    assert (recipe.mean, recipe.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@pytest.mark.any_backend
def test_a_stem_of_convolutions_is_refused(tmp_path):
    tensors = Reference().state_dict()
    tensors["conv_proj.conv_bn_relu_0.0.weight"] = tensors.pop("conv_proj.weight")
    del tensors["conv_proj.bias"]
    refused("a stem of several convolutions", saved(tmp_path, tensors), num_heads=4)
