"""Arrays that timm keeps as one for several layers."""

import re

import numpy as np

from keras_vit.weights.files import CheckpointError


def split(tower):
    """The arrays of a file, each of them for one layer, under timm's names for single layers.

    These are the frequencies of all blocks (`RotaryEmbeddingMixed`), the two halves of a hidden
    layer with a gate (`GluMlp`), and the layers of a `ParallelScalingBlock`.
    """
    tower = dict(tower)
    if (frequencies := tower.pop("rope.freqs", None)) is not None:
        for i in range(frequencies.shape[1]):
            tower[f"rope.freqs.{i}"] = frequencies[:, i]
    for name in [name for name in tower if re.fullmatch(r"blocks\.\d+\.norm2\.weight", name)]:
        _split_gate(tower, name.removesuffix("norm2.weight") + "mlp.")
    for name in [name for name in tower if re.fullmatch(r"blocks\.\d+\.in_proj\.weight", name)]:
        _split_parallel(tower, name.removesuffix("in_proj.weight"))
    return tower


def _split_gate(tower, mlp):
    first, second = (tower.get(f"{mlp}fc{n}.weight") for n in (1, 2))
    if first is None or second is None or first.shape[0] != 2 * second.shape[-1]:
        return
    for part in ("weight", "bias"):
        if (both := tower.pop(f"{mlp}fc1.{part}", None)) is not None:
            tower[f"{mlp}fc1_g.{part}"], tower[f"{mlp}fc1_x.{part}"] = np.split(both, 2)


def _split_parallel(tower, block):
    width = tower[f"{block}in_proj.weight"].shape[-1]
    for part in ("weight", "bias"):
        if (whole := tower.pop(f"{block}in_proj.{part}", None)) is not None:
            if len(whole) <= 3 * width:
                raise CheckpointError(
                    f"'{block}in_proj.{part}' has the shape {whole.shape}; expected more than "
                    f"{3 * width} rows. The file is damaged."
                )
            hidden, qkv = np.split(whole, [len(whole) - 3 * width])
            tower[f"{block}mlp.fc1.{part}"], tower[f"{block}attn.qkv.{part}"] = hidden, qkv
    if (bias := tower.pop(f"{block}mlp_bias", None)) is not None:
        tower[f"{block}mlp.fc1.bias"] = bias
    if (whole := tower.pop(f"{block}out_proj.weight", None)) is not None:
        out, second = np.split(whole, [width], axis=1)
        tower[f"{block}attn_out_proj.weight"], tower[f"{block}mlp_out_proj.weight"] = out, second
    if (bias := tower.pop(f"{block}out_proj.bias", None)) is not None:
        tower[f"{block}attn_out_proj.bias"] = bias
        tower[f"{block}mlp_out_proj.bias"] = np.zeros_like(bias)


def joined_frequencies(file):
    """The arrays with the frequencies of all blocks as one."""
    blocks = sorted((n for n in file if n.startswith("rope.freqs.")), key=lambda n: int(n[11:]))
    others = {name: array for name, array in file.items() if name not in blocks}
    if not blocks:
        return others
    return {**others, "rope.freqs": np.stack([file[name] for name in blocks], axis=1)}
