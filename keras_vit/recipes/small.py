"""Small runs from scratch, in minutes on a CPU, on data that needs no network."""

from keras_vit.data.transform import Transform
from keras_vit.recipes.recipe import Recipe


def _small(name, examples, image_size, transform, **settings):
    return Recipe(
        name=name,
        source="keras_vit's own",
        dataset=name,
        variant=None,
        examples=examples,
        num_classes=10,
        train=transform,
        eval=Transform(image_size, "squash"),
        optimizer="adam",
        schedule="cosine",
        clip_norm=1.0,
        **settings,
    )


def digits():
    """Scikit-learn's handwritten digits, enlarged to 16 x 16, in 45 epochs."""
    return _small(
        "digits",
        1438,
        16,
        Transform(16, "squash", affine=(12.0, 0.12, 0.06)),
        architecture=_architecture(width=64, depth=3, num_heads=4, patch_size=4),
        label_smoothing=0.1,
        batch_size=64,
        steps=990,
        warmup_steps=100,
        learning_rate=3e-3,
        weight_decay=0.1,
    )


def fashion_mnist():
    """Fashion-MNIST, 28 x 28, in 12 epochs: a hybrid, which learns faster than a plain ViT."""
    return _small(
        "fashion_mnist",
        60_000,
        28,
        Transform(28, "squash", flip=True),
        architecture=_architecture(
            width=64, depth=4, num_heads=2, stem=(1,), patch_size=1, position="sincos_2d"
        ),
        batch_size=64,
        steps=11_250,
        warmup_steps=1125,
        learning_rate=2e-3,
        weight_decay=0.05,
        label_smoothing=0.1,
    )


def _architecture(**choices):
    return {**choices, "pool": "mean", "channels": 1}
