"""Small random models of timm's Vision Transformers, as cases of `record.py`.

    python tests/oracles/make_timm.py OUT [--seed N] [--case NAME]
    python tests/oracles/make_timm.py --check [--seed N] [--case PART_OF_AN_ARCHITECTURE]

The second form stores nothing: it builds every architecture that timm has of these classes, small,
and compares what `keras_vit` computes with the weights, outputs and block by block; then it writes
the model for timm, and compares what timm opens. It needs timm and keras_vit beside each other.
"""

import argparse
import json
import pathlib
import sys
import tempfile
import warnings

import numpy as np
import safetensors.torch
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
import timm

from tests.oracles.record import randomize, record

MODULES = ("vision_transformer", "deit", "eva", "beit")
NOISE = 2e-6  # of rotary positions, which timm computes in float32
SMALL = {"embed_dim": 16, "depth": 2, "num_heads": 2, "mlp_ratio": 2, "patch_size": 4}
WITH_HEAD = {**SMALL, "num_classes": 3}
HEADLESS = {**SMALL, "num_classes": 0}
NORMS = {"qk_norm": True, "scale_attn_norm": True, "scale_mlp_norm": True, "proj_bias": False}
SHARED = {"use_rel_pos_bias": False, "use_shared_rel_pos_bias": True}
# Name -> (architecture, its arguments, (height, width) of the images).
CASES = {
    "deit_distilled": ("deit_small_distilled_patch16_224", WITH_HEAD, (8, 12)),
    "deit3": ("deit3_small_patch16_224", WITH_HEAD, (12, 8)),
    "dinov2_g_reg4": ("vit_giant_patch14_reg4_dinov2", HEADLESS, (8, 12)),
    "clip_quickgelu": ("vit_base_patch16_clip_quickgelu_224", WITH_HEAD, (12, 12)),
    "aimv2": ("aimv2_large_patch14_224", {**WITH_HEAD, "patch_size": 5}, (10, 15)),
    "xp": ("vit_base_patch16_xp_224", WITH_HEAD, (8, 12)),
    "rpn": ("vit_base_patch16_rpn_224", WITH_HEAD, (8, 12)),
    "so150m_map": ("vit_so150m_patch16_reg4_map_256", {**WITH_HEAD, "class_token": True}, (8, 12)),
    "norms": ("vit_small_patch16_224", {**WITH_HEAD, **NORMS, "norm_layer": "rmsnorm"}, (12, 8)),
    "eva02": ("eva02_base_patch14_224", WITH_HEAD, (8, 12)),
    "dinov3_plus": ("vit_small_plus_patch16_dinov3_qkvb", WITH_HEAD, (12, 20)),
    "pe_core": ("vit_pe_core_tiny_patch16_384", {**HEADLESS, "attn_pool_num_heads": 4}, (12, 8)),
    "rope_axial": ("vit_small_patch16_rope_224", WITH_HEAD, (8, 12)),
    "rope_mixed_ape": ("vit_small_patch16_rope_mixed_ape_224", WITH_HEAD, (12, 8)),
    "beit": ("beit_base_patch16_224", WITH_HEAD, (8, 12)),
    "beit_shared": ("beitv2_base_patch16_224", {**HEADLESS, **SHARED}, (12, 12)),
}


def save(folder, model, architecture, arguments):
    """A folder as on timm's hub, whose `model_args` are the arguments alone."""
    folder.mkdir(parents=True)
    arrays = {name: array.contiguous() for name, array in model.state_dict().items()}
    safetensors.torch.save_file(arrays, folder / "model.safetensors")
    cfg = {k: v for k, v in model.pretrained_cfg.items() if isinstance(v, (int, float, str, tuple))}
    config = {
        "architecture": architecture,
        "num_classes": model.num_classes,
        "num_features": model.num_features,
        "model_args": arguments,
        "pretrained_cfg": cfg,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def built(architecture, arguments, seed):
    model = timm.create_model(architecture, **arguments)
    return randomize(model, seed)


def make(folder, architecture, arguments, image_size, seed):
    """Writes a case, and returns its folder."""
    arguments = {"img_size": image_size, **arguments}
    model = built(architecture, arguments, seed)
    save(folder / "model", model, architecture, arguments)
    options = {"image_size": list(image_size)} if model.pos_embed is None else {}
    noise = NOISE if getattr(model, "rope", None) is not None else 0.0
    record(folder, model, lambda m, x: m(x), model.blocks, image_size, seed, options, noise)
    record_intermediates(folder, model)
    return folder


def record_intermediates(folder, model):
    """Maps and learned tokens of all blocks with the last norm, as timm gives them for dense work.

    `maps` has the shape (blocks, batch, rows, columns, width), `learned` (blocks, batch, learned
    tokens, width).
    """
    images = np.load(folder / "io.npz")["input"].transpose(0, 3, 1, 2)
    with torch.no_grad():
        found = model.double().forward_intermediates(
            torch.tensor(images, dtype=torch.float64),
            return_prefix_tokens=True,
            norm=True,
            intermediates_only=True,
        )
    found = [each if isinstance(each, tuple) else (each, None) for each in found]
    maps = np.stack([m.numpy().transpose(0, 2, 3, 1) for m, _ in found]).astype("float32")
    learned = {} if found[0][1] is None else {"learned": np.stack([x.numpy() for _, x in found])}
    learned = {name: array.astype("float32") for name, array in learned.items()}
    np.savez_compressed(folder / "intermediates.npz", maps=maps, **learned)


# ---- every architecture of timm


def check(part, seed):
    """Prints the architectures whose numbers differ, or that are refused; returns how many."""
    import keras

    import keras_vit

    rng, failed, refused, worst = np.random.default_rng(seed), [], [], 0.0
    names = sorted(name for module in MODULES for name in timm.list_models(module=module))
    for name in (name for name in names if part in name):
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            folder = pathlib.Path(folder) / name
            try:
                make(folder, name, *drawn(name, rng), seed)
            except (AssertionError, RuntimeError, TypeError, ValueError) as error:
                print(f"{name}: not built small: {error}")
                continue
            try:
                difference = compared(keras, keras_vit, folder)
            except ValueError as error:  # also a CheckpointError
                refused.append(name)
                print(f"{name}: {str(error)[-300:]}")
                continue
            worst = max(worst, difference)
            if difference > 1e-5:
                failed.append(name)
                print(f"{name}: differs by {difference:.1e}")
    print(f"{len(names)} architectures, {len(refused)} refused, {len(failed)} differ; {worst:.1e}")
    return len(failed)


def drawn(name, rng):
    """Random small arguments of an architecture, and an image size."""
    keywords = _keywords(name)
    heads = keywords.get("num_heads", 12)
    patch = int(rng.choice([4, 7, 8]))
    size = tuple(int(side) for side in patch * rng.integers(2, 5, 2))
    arguments = {"patch_size": patch, "depth": 2, "embed_dim": heads * int(rng.choice([4, 8, 12]))}
    if "num_kv_heads" in keywords:
        arguments["num_kv_heads"] = heads
    arguments["num_classes"] = int(rng.choice([0, 3]))
    return arguments, size


def _keywords(name):
    """The arguments with which timm builds an architecture."""
    from unittest import mock

    module = sys.modules[timm.model_entrypoint(name).__module__]
    with mock.patch.object(module, "build_model_with_cfg") as build:
        timm.model_entrypoint(name)()
    return build.call_args.kwargs


def compared(keras, keras_vit, folder):
    """The largest relative difference of features, outputs, and outputs of what is written."""
    facts = json.loads((folder / "case.json").read_text())
    io = np.load(folder / "io.npz")
    model = keras_vit.from_checkpoint(folder / "model", **facts["options"])
    blocks = [layer.output for layer in model.layers if layer.name.startswith("block_")]
    inner = keras.Model(model.inputs, [*blocks, model.output])
    *features, output = (keras.ops.convert_to_numpy(x) for x in inner(io["input"]))
    keras_vit.save_weights(model, folder / "written" / "model.safetensors")
    theirs = timm.create_model("local-dir:" + str(folder / "written"), pretrained=True).eval()
    with torch.no_grad():
        again = theirs(torch.tensor(io["input"].transpose(0, 3, 1, 2))).numpy()
    pairs = [*zip(features, io["features"], strict=True), (output, io["output"]), (again, output)]
    return max(float(abs(a - b).max() / max(abs(b).max(), 1)) for a, b in pairs)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", default="")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check:
        sys.exit(check(options.case, options.seed) > 0)
    for name, (architecture, arguments, size) in CASES.items():
        if options.case in ("", name):
            make(options.out / f"timm_{name}", architecture, arguments, size, options.seed)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
