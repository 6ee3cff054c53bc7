"""Makes the files of `tests/oracles/before`: what a version before the layers were parted wrote.

Run at the commit 9a6265b ("What batches are made with has a name that says so") from its root:
`KERAS_BACKEND=torch python make_before.py FOLDER`. The files are kept as that commit wrote them, so
that every later version can be asked to open them: `tests/models/test_before.py`.
"""

import pathlib
import sys
import zipfile

import keras
import numpy as np

import keras_vit

VIT = {"image_size": 8, "patch_size": 4, "width": 16, "depth": 2, "num_heads": 2, "mlp_dim": 16}
VIT |= {"num_classes": 3, "channels": 1}
DROPS = {"dropout": 0.5, "attention_dropout": 0.5, "stochastic_depth": 0.5}
PARTS = {
    "norm": "rms_norm",
    "mlp": "swiglu",
    "layer_scale": 0.5,
    "qk_norm": "rms_norm",
    "mlp_norm": "layer_norm",
    "attention_norm": "layer_norm",
    "patch_norm": "layer_norm",
    "pre_norm": "rms_norm",
    "biases": "no_key",
    "activation": "gelu_erf",
}
MODELS = {
    "token": {"representation_size": 8, **DROPS},
    "mean": {"pool": "mean", "position": "sincos_2d", "class_token": False, "gelu": "erf"},
    "map": {"pool": "map", "position": "learned_2d", "registers": 2, "remat": True},
    "probe": {"pool": "probe", "pool_heads": 4, "projection": 6, "activation": "quick_gelu"},
    "token_mean": {"pool": "token_mean", "registers": 1, "position": "none"},
    "unpooled": {"pool": None, "variable_size": True},
    "relative": {"position": "relative", "position_at": "every_layer", "qkv_bias": False},
    "every": {"position": "learned_1d", "position_at": "every_layer"},
    "shared": {"position": "relative", "position_at": "shared", "remat": True},
    "relative_2d": {"position": "relative_2d", "layer_scale": 0.1, "biases": "no_key"},
    "parts": PARTS,
    "distillation": {"distillation": True, "layer_scale": 0.1},
    "rotary_dinov3": {"rotary": "dinov3", "biases": "no_key", "registers": 1, "remat": True},
    "rotary_eva02": {"rotary": "eva02", "mlp": "swiglu", "mlp_norm": "layer_norm"},
    "rotary_mixed": {"rotary": "mixed", "patch_dropout": 0.5},
    "post_norm": {"block": "post_norm", "position": "relative_2d", "qk_norm": "rms_norm"},
    "add_norm": {"block": "add_norm", **DROPS},
    "parallel": {"block": "parallel", "qk_norm": "layer_norm", "biases": "qkv"},
    "axial": {"block": "axial", "pool": "mean", "class_token": False},
    "merging": {"token_merging": 1, "pool": "mean"},
    "merging_post_norm": {"token_merging": [1, 0], "block": "post_norm"},
    "remat_post_norm": {"remat": True, "block": "post_norm", **DROPS},
    "remat_parallel": {"remat": True, "block": "parallel", "layer_scale": 0.5},
    "remat_add_norm": {"remat": True, "block": "add_norm"},
    "hybrid": {"patch_size": 1, "stem_width": 0.5, "stem": (1,), "position": "learned_2d"},
    "half": {"dtype": "mixed_bfloat16", "attention_norm": "layer_norm"},
}
OWN = {  # models that users build of the layers, of which a file holds each by itself
    "own_relative": {"position": "relative"},
    "own_relative_2d": {"position": "relative_2d", "block": "post_norm"},
    "own_rotary": {"rotary": "eva02", "layer_scale": 0.5, "remat": True},
    "own_merging": {"token_merging": 1, "pool": "mean", "class_token": True},
    "own_axial": {"block": "axial", "pool": "mean", "class_token": False},
    "own_remat": {"remat": True, "pool": "token_mean"},
}


def main(folder):
    folder = pathlib.Path(folder)
    images = np.random.default_rng(0).uniform(-1, 1, (2, 8, 8, 1)).astype("float32")
    outputs = {"images": images}
    for seed, (name, fields) in enumerate(MODELS.items()):
        keras.utils.set_random_seed(seed)
        save(keras_vit.VisionTransformer(**{**VIT, **fields}), folder / name, images, outputs)
    keras.utils.set_random_seed(90)
    bit = keras_vit.BiT(blocks=(1,), width=0.5, image_size=8, num_classes=3, channels=1)
    save(bit, folder / "bit", images, outputs)
    for name, fields in {"own": {}, **OWN}.items():
        model = keras_vit.VisionTransformer(**{**VIT, **fields})
        own = keras.Model(
            model.input, keras.layers.Dense(2, name="own")(model.get_layer("pool").output)
        )
        save(own, folder / name, images, outputs)
    np.savez_compressed(folder / "outputs.npz", **outputs)


def save(model, path, images, outputs):
    """Random values, so that no part is 0 or 1 as it starts, in half precision, which takes half
    the room and is exact.
    """
    random = np.random.default_rng(len(model.name))
    for w in model.weights:
        if "seed" not in w.path:
            values = random.normal(0.0, 0.3, w.shape) + (0.0 if len(w.shape) > 1 else 0.5)
            w.assign(values.astype("float16").astype("float32"))
    outputs[path.name] = np.asarray(model.predict(images, verbose=0), "float32")
    model.save(f"{path}.keras")
    with zipfile.ZipFile(f"{path}.keras") as archive:  # Keras does not compress it
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(f"{path}.keras", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)


if __name__ == "__main__":
    main(*sys.argv[1:])
