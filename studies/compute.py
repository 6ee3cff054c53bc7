"""What the models of the paper cost to compute: Tables 2 and 6, counted again.

    KERAS_BACKEND=jax python studies/compute.py

prints both tables beside our counts, as docs/studies/compute.md shows them. The models are only
described, so that no memory is needed. A multiply-accumulate (MAC) is one product that is added to
a sum: 2 FLOPs.
"""

import math
import sys

import keras

import keras_vit
from keras_vit.training.cost import vit_products  # noqa: F401  (docs/studies/compute.md)

# Images of an epoch: section 4.1 of the paper.
JFT, IMAGENET_21K, IMAGENET = 303e6, 14e6, 1.28e6
# FLOP/s in bfloat16: half of a chip's 123e12, which has two cores (Google Cloud's page "TPU v3");
# the tensor cores of the SXM form without sparsity (NVIDIA's data sheet of the H100).
TPU_V3_CORE, H100 = 61.5e12, 989.4e12
DAY, HOUR = 86_400, 3600

# Table 2. Builder, pixels in fine-tuning; accuracy on ImageNet, ReaL, CIFAR-10, CIFAR-100 and VTAB
# in %; pixels and images of the pre-training; TPUv3-core-days. Which of the epochs of Table 3 the
# ViT-L/16 had, the paper does not say: these are the longer ones.
TABLE_2 = {
    "ViT-H/14": ("ViT_H14", 518, (88.55, 90.72, 99.50, 94.55, 77.63), 224, 14 * JFT, 2500),
    "ViT-L/16": ("ViT_L16", 512, (87.76, 90.54, 99.42, 93.90, 76.28), 224, 14 * JFT, 680),
    "ViT-L/16 (I21k)": (
        "ViT_L16", 512, (85.30, 88.62, 99.15, 93.25, 72.72), 224, 90 * IMAGENET_21K, 230
    ),
    # 40 epochs: Kolesnikov et al., 2020, section 3.
    "BiT-L (R152x4)": (
        "BiT_R152x4", 480, (87.54, 90.54, 99.37, 93.51, 76.29), 224, 40 * JFT, 9900
    ),
    # 350 epochs of ImageNet at 475 pixels, with 14 images without labels beside each: Xie et al.,
    # 2020, whose 6 days on 2048 cores are the core-days here.
    "Noisy Student (EffNet-L2)": (
        "EfficientNet_L2", 800, (88.4, 90.55), 475, 350 * 15 * IMAGENET, 12_300
    ),
}  # fmt: skip
# Table 6: epochs on JFT-300M, exaFLOPs. The ResNets are named by layers and width.
TABLE_6 = {
    ("B/32", 7): 55,
    ("B/16", 7): 224,
    ("L/32", 7): 196,
    ("L/16", 7): 783,
    ("L/16", 14): 1567,
    ("H/14", 14): 4262,
    ("R50x1", 7): 50,
    ("R50x2", 7): 199,
    ("R101x1", 7): 96,
    ("R152x1", 7): 141,
    ("R152x2", 7): 563,
    ("R152x2", 14): 1126,
    ("R200x3", 14): 3306,
    ("R50+B/32", 7): 106,
    ("R50+B/16", 7): 274,
    ("R50+L/32", 7): 246,
    ("R50+L/16", 7): 859,
    ("R50+L/16", 14): 1668,
}
UNITS = {"R50": (3, 4, 6, 3), "R101": (3, 4, 23, 3), "R152": (3, 8, 36, 3), "R200": (3, 24, 36, 3)}


def macs(model: keras.Model) -> float:
    """Multiply-accumulates of the forward pass for one image, by XLA's cost analysis.

    It counts whatever the model is made of: every product of matrices and every convolution, and
    besides these one FLOP, half a MAC, for each number of an elementwise operation or a sum over an
    axis. Exponentials, roots and the like are not counted. Products and convolutions are 99.6 % of
    ViT-B/16, but 94 % of a ViT of width 32. Products with the padding of a convolution are left
    out, unless the model pads in a step of its own, as a BiT of version v2 does.

    It is what one more image in a batch costs: what is done once for a batch, as when a BiT
    standardises its kernels, is left out. The program is described and not run, so that the model
    needs no values.

    Args:
        model: a model of this library, or another one of Keras with images of a fixed size.

    Raises:
        RuntimeError: Keras runs on another backend than JAX.
    """
    if keras.backend.backend() != "jax":
        raise RuntimeError(
            "XLA counts the operations of models on JAX. Received: the backend "
            f"{keras.backend.backend()!r}; set the environment variable KERAS_BACKEND=jax, or take "
            "vit_products, a formula for the products of a ViT."
        )
    import jax

    def described(variables):
        return [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in variables]

    def forward(*inputs):
        return model.stateless_call(*inputs, training=False)[0]

    def flops(batch):
        images = jax.ShapeDtypeStruct((batch, *sides, channels), "float32")
        return jax.jit(forward).lower(*variables, images).cost_analysis()["flops"]

    *sides, channels = model.input_shape[1:]
    if None in sides:  # BiT, which takes images of any size
        sides = model.image_size
    variables = [described(model.trainable_variables), described(model.non_trainable_variables)]
    return (flops(3) - flops(2)) / 2


def exaflops(forward_macs: float, images: float) -> float:
    """10^18 FLOPs of a training on so many images, those of an epoch times epochs.

    A MAC is 2 FLOPs, and a step computes three times the forward pass: the backward pass has one
    product for the inputs and one for the weights of each product.
    """
    return 3 * 2 * forward_macs * images / 1e18


def described(build, **arguments):
    """(trained parameters, macs) of the model that `build` returns, without its values."""
    with keras.StatelessScope(initialize_variables=False):
        model = build(**arguments)
        counts = sum(math.prod(v.shape) for v in model.trainable_variables), macs(model)
    keras.utils.clear_session(free_memory=False)
    return counts


def of_table_6(name):
    """A model of Table 6 at 224 pixels, without a head.

    The ResNets have the units of version v1, as the stems of the hybrids do.
    """
    if name.split("x")[0] not in UNITS:
        return keras_vit.VisionTransformer(name, num_classes=0)
    layers, width = name.split("x")
    return keras_vit.BiT(blocks=UNITS[layers], width=float(width), version="v1", num_classes=0)


def print_table(header, rows):
    """Markdown; a row appears as soon as it is known."""
    print("|", " | ".join(header), "|")
    print("|---" * len(header) + "|")
    for row in rows:
        print("|", " | ".join(map(str, row)), "|", flush=True)
    print()


def systems():
    """The systems of Table 2, as they are fine-tuned."""
    for name, (builder, side, accuracies, *_, days) in TABLE_2.items():
        parameters, forward = described(getattr(keras_vit, builder), image_size=side)
        cells = [*map(str, accuracies), *["-"] * (5 - len(accuracies))]
        yield name, side, f"{parameters / 1e6:.1f}", f"{forward / 1e9:.0f}", *cells, days


def pretraining():
    """What the pre-training of the systems of Table 2 computes, and how fast it must have been."""
    for name, (builder, *_, side, images, days) in TABLE_2.items():
        model = getattr(keras_vit, builder)
        _, forward = described(model, image_size=side, include_top=False)
        total = exaflops(forward, images)
        share = total * 1e18 / (days * DAY * TPU_V3_CORE)
        hours = days * DAY * TPU_V3_CORE / (HOUR * H100)
        numbers = f"{images / 1e9:.2f}", f"{forward / 1e9:.1f}", f"{total:.0f}", days
        yield name, side, *numbers, f"{share:.0%}", f"{hours:.0f}"


def scaling():
    """Table 6 beside our counts."""
    counted = {}
    for (name, epochs), printed in TABLE_6.items():
        if name not in counted:
            counted[name] = described(of_table_6, name=name)[1]
        total = exaflops(counted[name], epochs * JFT)
        share = f"{total / printed - 1:+.1%}"
        yield name, epochs, f"{counted[name] / 1e9:.2f}", f"{total:.1f}", printed, share


def axial():
    """What the axial models of appendix D.6 cost beside those of Table 1, at 224 pixels."""
    for name in ("B/32", "B/16"):
        arguments = {"variant": name, "pool": "mean", "num_classes": 0}
        plain, axial = (
            described(keras_vit.VisionTransformer, block=block, **arguments)
            for block in ("pre_norm", "axial")
        )
        counts = [f"{n / 1e6:.1f}" for n in (plain[0], axial[0])]
        counts += [f"{n / 1e9:.2f}" for n in (plain[1], axial[1])]
        yield name, *counts, f"{axial[1] / plain[1]:.2f}"


def main():
    sys.setrecursionlimit(10_000)  # EfficientNet-L2 is deep
    quality = ("ImageNet", "ReaL", "CIFAR-10", "CIFAR-100", "VTAB")
    header = ("system", "px", "parameters, M", "MACs, G", *quality, "TPUv3-core-days")
    print_table(header, systems())
    header = ("system", "px", "images, G", "MACs, G", "exaFLOPs", "TPUv3-core-days")
    print_table((*header, "share of the peak", "H100-hours at that share"), pretraining())
    header = ("model", "epochs", "MACs, G", "exaFLOPs", "Table 6", "difference")
    print_table(header, scaling())
    header = ("model", "parameters, M", "axial", "MACs, G", "axial", "times the MACs")
    print_table(header, axial())


if __name__ == "__main__":
    main()
