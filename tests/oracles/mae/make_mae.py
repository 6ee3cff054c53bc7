"""Writes the oracle of a masked autoencoder: a small random ViTMAEForPreTraining of transformers.

    python tests/oracles/mae/make_mae.py

    model/      the checkpoint; gradients/ another one, of d loss / d parameter (normalised pixels)
    io.npz      images (batch, height, width, channels), noise, reconstruction, mask, and the losses
                of plain and of normalised pixels, computed in float64

It needs torch, transformers (5.23) and safetensors.
"""

import pathlib
import sys

import numpy as np
import torch
from transformers import ViTMAEConfig, ViTMAEForPreTraining

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from record import randomize

SIZES = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3}
SIZES |= {"intermediate_size": 20, "image_size": 12, "patch_size": 4, "mask_ratio": 0.6}
SIZES |= {f"decoder_{n}": v for n, v in SIZES.items() if n.startswith(("num_", "inter"))}
SIZES |= {"decoder_hidden_size": 8, "decoder_num_attention_heads": 2, "norm_pix_loss": True}


def main():
    folder = pathlib.Path(__file__).parent
    model = randomize(ViTMAEForPreTraining(ViTMAEConfig(**SIZES)), seed=0)
    model.save_pretrained(folder / "model")
    model, rng = model.double(), np.random.default_rng(0)
    images, noise = rng.uniform(-1, 1, (2, 3, 12, 12)), rng.uniform(size=(2, 9))
    images, noise = images.astype("float32"), noise.astype("float32")
    inputs = torch.tensor(images).double(), torch.tensor(noise)
    outputs = model(inputs[0], noise=inputs[1])
    outputs.loss.backward()
    model.config.norm_pix_loss = False
    plain = model(inputs[0], noise=inputs[1])
    model.config.norm_pix_loss = True
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.zeros_like(p) if p.grad is None else p.grad)
    model.save_pretrained(folder / "gradients")
    np.savez_compressed(
        folder / "io.npz",
        images=images.transpose(0, 2, 3, 1),
        noise=noise,
        mask=outputs.mask.numpy(),
        reconstruction=outputs.logits.detach().numpy(),
        losses=[plain.loss.item(), outputs.loss.item()],
    )


if __name__ == "__main__":
    main()
