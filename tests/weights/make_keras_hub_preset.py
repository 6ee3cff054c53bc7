"""Writes `tests/oracles/keras_hub`: small KerasHub presets, and what KerasHub computes with them.

Run by hand, from the root of the repository, where keras-hub and JAX are installed:

    python tests/weights/make_keras_hub_preset.py

All weights are random, so that no fresh zero or one hides a path. `io.npz` holds `input` (float32,
channels last), `output_f32` and `output_f64` (KerasHub in either precision, with the weights of
the preset), and for a preset with an image converter a `photo` (uint8) and what the converter
makes of it as floats, `photo_converted`.

Keras takes parts of a float64 model (norms, means, the fused attention) through float32. For
`output_f64` its type promotion is told to keep float64, and a rate of dropout in the attention,
which does nothing outside of training, makes it leave the fused kernel.
"""

import os
import pathlib

os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_ENABLE_X64"] = "1"

import keras
import keras_hub
import numpy as np
from keras.src import backend
from keras.src.backend.common import dtypes

FOLDER = pathlib.Path(__file__).parent.parent / "oracles" / "keras_hub"
SIZES = {"num_layers": 2, "num_heads": 4, "hidden_dim": 32, "mlp_dim": 48}
IMAGENET = {"mean": np.array([0.485, 0.456, 0.406]), "std": np.array([0.229, 0.224, 0.225])}
CASES = {
    # Rates above zero, which make no difference outside of training.
    "classifier_token": {
        "backbone": {"image_shape": (32, 32, 3), "patch_size": 8, "dropout_rate": 0.1},
        "task": {"num_classes": 5, "dropout": 0.1},
        "converter": {"image_size": (32, 32), "scale": 1 / 127.5, "offset": -1.0},
    },
    "classifier_gap_prelogits": {
        "backbone": {
            "image_shape": (16, 24, 3),
            "patch_size": (8, 4),
            "use_class_token": False,
            "layer_norm_epsilon": 1e-3,
        },
        "task": {"num_classes": 4, "pooling": "gap", "intermediate_dim": 16},
        "converter": {
            "image_size": (16, 24),
            "scale": list(1 / (255 * IMAGENET["std"])),
            "offset": list(-IMAGENET["mean"] / IMAGENET["std"]),
            "crop_to_aspect_ratio": False,
            "interpolation": "bicubic",
        },
    },
    "backbone_no_bias": {
        "backbone": {
            "image_shape": (16, 16, 1),
            "patch_size": 4,
            "use_mha_bias": False,
            "use_mlp_bias": False,
            "use_patch_bias": False,
        },
    },
}


def build(case, dtype):
    """The backbone, or the classifier where the case has a task."""
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)
    backbone = keras_hub.models.ViTBackbone(**SIZES, **case["backbone"], dtype=dtype)
    if "task" not in case:
        return backbone
    converter = keras_hub.layers.ViTImageConverter(**case["converter"], dtype="float32")
    preprocessor = keras_hub.models.ViTImageClassifierPreprocessor(converter, dtype="float32")
    return keras_hub.models.ViTImageClassifier(backbone, preprocessor=preprocessor, **case["task"])


PROMOTE = dtypes.result_type


def keep_float64(*types):
    """`result_type` of Keras, but float64 stays so."""
    is_float64 = any(getattr(t, "name", t) == "float64" for t in types)
    return "float64" if is_float64 else PROMOTE(*types)


def exact_output(case, model, images):
    """What KerasHub computes in float64 with the weights of `model`."""
    case = {**case, "backbone": {**case["backbone"], "attention_dropout": 0.5}}
    exact = build(case, "float64")
    weights = [v for v in model.weights if "seed_generator" not in v.path]
    targets = [v for v in exact.weights if "seed_generator" not in v.path]
    for target, v in zip(targets, weights, strict=True):
        target.assign(np.asarray(v))
    return np.asarray(exact(images.astype("float64"), training=False))


def random_weights(model, seed):
    """float32 values of a size that lets a signal pass."""
    rng = np.random.default_rng(seed)
    for v in model.weights:
        if "seed_generator" not in v.path:
            fan_in = np.prod(v.shape) ** 0.5 if len(v.shape) > 1 else 4.0
            v.assign((rng.normal(size=v.shape) / fan_in**0.5 + ("gamma" in v.path)).astype("f4"))


def main():
    for seed, (name, case) in enumerate(CASES.items()):
        folder, rng = FOLDER / name, np.random.default_rng(seed + 100)
        model = build(case, "float32")
        random_weights(model, seed)
        model.save_to_preset(str(folder))
        images = rng.uniform(-1, 1, (3, *case["backbone"]["image_shape"])).astype("float32")
        arrays = {"input": images, "output_f32": np.asarray(model(images, training=False))}
        if "converter" in case:
            arrays["photo"] = rng.integers(0, 256, (41, 60, 3)).astype("uint8")
            converter = model.preprocessor.image_converter
            arrays["photo_converted"] = np.asarray(converter(arrays["photo"].astype("float32")))
        dtypes.result_type = backend.result_type = keep_float64
        arrays["output_f64"] = exact_output(case, model, images)
        dtypes.result_type = backend.result_type = PROMOTE
        np.savez(folder / "io.npz", **arrays)
        noise = np.abs(arrays["output_f32"] - arrays["output_f64"]).max()
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(f"{name}: {size} bytes, float32 differs by {noise:.1e} from float64")


if __name__ == "__main__":
    main()
