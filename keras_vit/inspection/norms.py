"""Lengths of tokens: the few very long ones carry global information (Darcet et al., 2024)."""

import typing

import numpy as np

from keras_vit.inspection.inputs import as_inputs, layout_of, transformer_blocks
from keras_vit.inspection.tokens import iterate_outputs, to_array


class TokenNorms(typing.NamedTuple):
    """What `token_norms` found.

    Attributes:
        learned: (blocks, images, learned tokens): class token first, then registers.
        patches: (blocks, images, rows, columns).
    """

    learned: np.ndarray
    patches: np.ndarray

    def outliers(self, factor=4.0):
        """Which patches are longer than `factor` times the median patch of their block.

        Darcet et al. set a fixed length for each model (150 for DINOv2-g); the median makes one
        rule for all.

        Returns:
            bool array of shape (blocks, images, rows, columns).
        """
        typical = np.median(self.patches, axis=(1, 2, 3), keepdims=True)
        return self.patches > factor * typical


def token_norms(model, images, blocks=None, batch_size=8):
    """The Euclidean length of each token after each block, before the last LayerNorm.

    Args:
        model, images, blocks, batch_size: as in `attention_weights`.

    Returns:
        A `TokenNorms`.

    Raises:
        ValueError: the model has no such block; images that it does not take.

    Source: Darcet et al. (2024), "Vision transformers need registers", Fig. 3 and 4.
    """
    images, chosen = as_inputs(model, images), transformer_blocks(model, blocks)
    layout = layout_of(model, images.shape[1:3])
    key = f"tokens after {[block.name for block in chosen]}"
    outputs = iterate_outputs(model, [block.output for block in chosen], key, images, batch_size)
    parts = [
        [np.linalg.norm(to_array(x)[:count].astype("float64"), axis=-1) for x in tokens]
        for tokens, count in outputs
    ]
    norms = np.concatenate([np.stack(part) for part in parts], axis=1)
    learned, patches = np.split(norms, [layout.learned], axis=2)
    return TokenNorms(learned, patches.reshape(*patches.shape[:2], *layout.grid))
