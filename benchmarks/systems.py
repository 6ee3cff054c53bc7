"""The systems of the paper's Table 2 side by side: what each is, and what it reached.

    KERAS_BACKEND=jax python benchmarks/systems.py

Parameters and operations are counted on the models of this library, which are described and not
computed, so no memory is needed; the accuracies are the paper's.
"""

import sys

import jax
import keras
import numpy as np

import keras_vit

sys.setrecursionlimit(10_000)  # EfficientNet-L2 is deep

# Builder, image size; ImageNet, ReaL, CIFAR-10, CIFAR-100, VTAB in %, TPUv3-core-days (Table 2).
SYSTEMS = {
    "ViT-H/14": ("ViT_H14", 518, (88.55, 90.72, 99.50, 94.55, 77.63), "2.5k"),
    "ViT-L/16": ("ViT_L16", 512, (87.76, 90.54, 99.42, 93.90, 76.28), "0.68k"),
    "ViT-L/16 (I21k)": ("ViT_L16", 512, (85.30, 88.62, 99.15, 93.25, 72.72), "0.23k"),
    "BiT-L (R152x4)": ("BiT_R152x4", 480, (87.54, 90.54, 99.37, 93.51, 76.29), "9.9k"),
    "Noisy Student (EffNet-L2)": ("EfficientNet_L2", 800, (88.4, 90.55), "12.3k"),
}
PAPER = ("ImageNet", "ReaL", "CIFAR-10", "CIFAR-100", "VTAB")


def count(builder, image_size):
    """Trained parameters, and multiply-adds for one image."""
    with keras.StatelessScope(initialize_variables=False):
        model = getattr(keras_vit, builder)(image_size=image_size)
        trained, fixed = (
            [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in variables]
            for variables in (model.trainable_variables, model.non_trainable_variables)
        )
    image = jax.ShapeDtypeStruct((1, image_size, image_size, 3), "float32")
    lowered = jax.jit(lambda *a: model.stateless_call(*a, training=False)[0]).lower(
        trained, fixed, image
    )
    keras.utils.clear_session(free_memory=False)
    return sum(int(np.prod(v.shape)) for v in trained), lowered.cost_analysis()["flops"] / 2


def main():
    if keras.backend.backend() != "jax":
        sys.exit(
            f"JAX counts the operations. Received: {keras.backend.backend()}; set "
            "KERAS_BACKEND=jax."
        )
    print(
        "| system | px | parameters, M | multiply-adds, G |",
        " | ".join(PAPER),
        "| TPUv3-core-days |",
    )
    print("|---" * (5 + len(PAPER)) + "|")
    for system, (builder, image_size, reached, days) in SYSTEMS.items():
        parameters, operations = count(builder, image_size)
        reached = (*map(str, reached), *["-"] * (len(PAPER) - len(reached)))
        row = (system, image_size, f"{parameters / 1e6:.1f}", f"{operations / 1e9:.0f}")
        print("|", " | ".join(map(str, (*row, *reached, days))), "|", flush=True)


if __name__ == "__main__":
    main()
