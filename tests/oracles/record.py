"""Small random models of other libraries on PyTorch, with what they compute in float64.

A generator (such as make_timm.py) builds and saves a model, and calls `record`. The folder of a
case then holds

    model/                 the checkpoint as its library writes it
    gradients.safetensors  d loss / d parameter, under the names of the checkpoint's arrays
    io.npz                 input (batch, height, width, channels), output, cotangent, input_gradient
                           and features (blocks, batch, tokens, width); the loss is the sum of
                           output * cotangent
    case.json              options of `keras_vit.from_checkpoint`, and the noise of float64 where
                           the library itself computes parts in float32
"""

import argparse
import json
import pathlib

import numpy as np
import safetensors.numpy
import torch


def command_line(names, make, description):
    """Runs a generator: OUT [--seed N] [--case NAME]. `make(folder, name, seed)` makes one case."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path, help="folder for the cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", choices=list(names), help="one case instead of all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in [options.case] if options.case else names:
        make(options.out, name, options.seed)


def randomize(model, seed):
    """Gives every parameter a random value, so that no zero or one hides a part."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            fan_in = float(np.prod(p.shape)) ** 0.5 if p.ndim > 1 else 4.0
            is_gamma = p.ndim == 1 and name.endswith("weight")
            values = torch.randn(p.shape, generator=generator, dtype=torch.float64) / fan_in**0.5
            p.copy_((values + is_gamma).float())
    return model.eval()


def record(folder, model, forward, blocks, image_size, seed, options=None, noise=0.0, rename=None):
    """Writes everything but `model/`, which must hold the same weights already.

    Args:
        folder: of the case.
        model: a `torch.nn.Module` with float32 weights.
        forward: function of the model and of images (batch, channels, height, width).
        blocks: the modules whose outputs are the features, in order.
        image_size: (height, width).
        seed: of images and cotangent.
        options: arguments of `keras_vit.from_checkpoint`.
        noise: largest difference in float64 that the library's own float32 parts explain.
        rename: function from a parameter's name to its name in the file, `None` for those that the
            file lacks.
    """
    folder, features = pathlib.Path(folder), []
    rng, model = np.random.default_rng(seed), model.double()
    channels = next(p for p in model.parameters() if p.ndim == 4).shape[1]
    images = rng.uniform(-1, 1, (2, *image_size, channels)).astype("float32")

    def keep(module, inputs, output):
        output = output[0] if isinstance(output, (tuple, list)) else output
        features.append(output.detach().numpy())

    hooks = [block.register_forward_hook(keep) for block in blocks]
    x = torch.tensor(images.transpose(0, 3, 1, 2), dtype=torch.float64, requires_grad=True)
    output = forward(model, x)
    for hook in hooks:
        hook.remove()
    cotangent = rng.normal(size=tuple(output.shape))
    (output * torch.tensor(cotangent)).sum().backward()
    gradients = {
        (rename or (lambda name: name))(name): p.grad.numpy().astype("float32")
        for name, p in model.named_parameters()
        if p.grad is not None
    }
    gradients.pop(None, None)
    folder.mkdir(parents=True, exist_ok=True)
    safetensors.numpy.save_file(gradients, folder / "gradients.safetensors", {"format": "pt"})
    np.savez_compressed(
        folder / "io.npz",
        input=images,
        output=output.detach().numpy(),
        features=np.stack(features).astype("float32"),
        cotangent=cotangent,
        input_gradient=x.grad.numpy().transpose(0, 2, 3, 1).astype("float32"),
    )
    case = {"options": options or {}, "noise": noise}
    (folder / "case.json").write_text(json.dumps(case, indent=1) + "\n")
