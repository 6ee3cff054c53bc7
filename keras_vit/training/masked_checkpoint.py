"""The decoder in files of Hugging Face's `ViTMAEForPreTraining`."""

import re

import numpy as np

from keras_vit.checks import positive_int
from keras_vit.weights.files import CheckpointError, open_checkpoint
from keras_vit.weights.formats import huggingface
from keras_vit.weights.tables import SAME, Table, shortened, split_heads, torch_linear, torch_norm

# Its blocks have the names of an encoder's, behind one of these.
BLOCKS = re.compile(r"decoder\.decoder_(layers|encoder\.layer)\.")
OTHERS = Table(
    ("decoder.mask_token", "mask", SAME),
    ("decoder.decoder_pos_embed", "position", SAME),
    *torch_linear("decoder.decoder_embed", "embed"),
    *torch_norm("decoder.decoder_norm", "norm"),
    *torch_linear("decoder.decoder_pred", "prediction"),
)


def read_decoder(path):
    """The decoder of a folder: arguments of `MaskedAutoencoder`, and its arrays by variable.

    Raises:
        CheckpointError: there is none, it is damaged, or config.json is of another model.
    """
    contents = open_checkpoint(path)
    names = [name for name in contents.arrays if name.startswith("decoder.")]
    parts = {bool(BLOCKS.match(name)): {} for name in names}
    for name in names:
        parts[bool(BLOCKS.match(name))][BLOCKS.sub("layers.", name)] = contents.arrays[name]
    if len(parts) < 2:
        raise CheckpointError(
            f"{str(path)!r} has no decoder of a masked autoencoder: the names of its arrays do not "
            f"begin with 'decoder.decoder_layers.0'. Received: {shortened(names, 3)}; take "
            "keras_vit.from_checkpoint for the encoder alone."
        )
    arrays = {}
    for table, part in ((huggingface.FAMILY.table, parts[True]), (OTHERS, parts[False])):
        arrays |= table.read(part, "a masked autoencoder")[0]
    config = contents.config
    heads = positive_int(config.get("decoder_num_attention_heads", 16), "decoder_heads")
    split_heads(arrays, heads)
    hidden = arrays.get("block_0/mlp/dense_1/kernel", np.zeros((0, 0)))
    sizes = {  # argument -> the key of config.json, and the value that the arrays have
        "decoder_width": ("decoder_hidden_size", hidden.shape[0]),
        "decoder_depth": ("decoder_num_hidden_layers", _count(arrays)),
        "decoder_mlp_dim": ("decoder_intermediate_size", hidden.shape[1]),
    }
    for key, value in sizes.values():
        if not value or config.get(key, value) != value:
            raise CheckpointError(
                f"{str(path)!r}: the decoder is not that of config.json, or damaged. Received: "
                f"{key}={config.get(key)!r}, and {value} in the arrays."
            )
    options = {name: value for name, (_, value) in sizes.items()}
    options |= {
        "decoder_heads": heads,
        "masked": config.get("mask_ratio", 0.75),
        "norm_pix_loss": config.get("norm_pix_loss", False),
    }
    return options, arrays


def _count(arrays):
    return len({name.split("/")[0] for name in arrays if name.startswith("block_")})


def assign_decoder(decoder, arrays, path):
    """Gives a decoder its arrays: all of them, or a CheckpointError and none."""
    variables = {v.path.removeprefix(f"{decoder.path}/"): v for v in decoder.weights}
    shapes = [{n: tuple(x.shape) for n, x in side.items()} for side in (variables, arrays)]
    wrong = [
        n for n in sorted(set(variables) | set(arrays)) if shapes[0].get(n) != shapes[1].get(n)
    ]
    wrong += [name for name, array in arrays.items() if not np.isfinite(array).all()]
    if wrong:
        raise CheckpointError(
            f"The decoder in {str(path)!r} does not fit, is damaged or not finite in "
            f"{shortened(wrong, 6)} (as (model, file): "
            f"{[(shapes[0].get(n), shapes[1].get(n)) for n in wrong[:3]]}); nothing was loaded."
        )
    for name, variable in variables.items():
        variable.assign(arrays[name])
