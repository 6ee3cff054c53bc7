"""Augmentations for batches of small images, in NumPy.

An augmentation is a function of a batch and a random generator. Every example draws its
own parameters: one draw shared by the batch would augment far less than it appears to.
"""

from typing import Protocol

import numpy as np


class Augmentation(Protocol):
    """Anything callable as `augment(images, rng)`.

    It receives uint8 or float images of shape (images, height, width, channels) and a
    `numpy.random.Generator`, draws randomness from that generator alone, leaves its input
    unchanged, and returns images of the same shape and dtype.
    """

    def __call__(self, images: np.ndarray, rng: np.random.Generator) -> np.ndarray: ...


def shift(pixels):
    """Makes an augmentation that moves each image by up to `pixels` either way.

    It is the padded random crop: pad every side, then cut back to the original size. The
    border repeats the edge pixels, so that no frame of a foreign colour appears.

    Args:
        pixels: the largest shift along each axis, a whole number >= 0.

    Raises:
        ValueError: `pixels` is not a whole number >= 0.
    """
    if isinstance(pixels, bool) or not isinstance(pixels, (int, np.integer)) or pixels < 0:
        raise ValueError(f"pixels must be a whole number >= 0. Received: {pixels!r}")

    def augment(images, rng):
        count, height, width = images.shape[:3]
        offsets = rng.integers(-pixels, pixels + 1, size=(2, count, 1))
        # Clipping the coordinates reads the edge pixel, which is padding without the pad.
        rows = np.clip(np.arange(height) + offsets[0], 0, height - 1)
        columns = np.clip(np.arange(width) + offsets[1], 0, width - 1)
        return images[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]

    return augment


def flip():
    """Makes an augmentation that mirrors each image left to right with probability 0.5."""
    return _flip_half


def _flip_half(images, rng):
    flipped = images.copy()
    mirrored = rng.random(len(images)) < 0.5
    flipped[mirrored] = images[mirrored, :, ::-1]
    return flipped


def compose(*steps):
    """Makes an augmentation that applies `steps` in order; with no step it does nothing.

    Raises:
        ValueError: a step is not callable.
    """
    for step in steps:
        if not callable(step):
            raise ValueError(
                "Every step must be callable as step(images, rng), such as shift(2) or "
                f"flip(). Received: {step!r}"
            )

    def augment(images, rng):
        for step in steps:
            images = step(images, rng)
        return images

    return augment


def affine(rotation=12.0, scale=0.12, shift=0.06):
    """Makes an augmentation that turns, scales and moves each image a little.

    One bilinear interpolation; places outside the image repeat the edge pixels.

    Args:
        rotation: the largest turn either way, in degrees.
        scale: the largest change of size either way, as a share, in [0, 1).
        shift: the largest move along each axis, as a share of height and width.

    Raises:
        ValueError: an argument is negative, or `scale` is 1 or more.
    """
    if min(rotation, scale, shift) < 0 or scale >= 1:
        raise ValueError(
            "rotation, scale and shift must be >= 0, and scale < 1. Received: "
            f"rotation={rotation!r}, scale={scale!r}, shift={shift!r}"
        )

    def augment(images, rng):
        count, height, width = images.shape[:3]
        angle = np.radians(rng.uniform(-rotation, rotation, (count, 1, 1)))
        size = rng.uniform(1 - scale, 1 + scale, (count, 1, 1))
        moved = rng.uniform(-shift, shift, (2, count, 1, 1))
        y = np.arange(height)[:, None] - (height - 1) / 2
        x = np.arange(width)[None, :] - (width - 1) / 2
        # For each pixel of the result, the place in the image that it comes from.
        rows = (np.cos(angle) * y - np.sin(angle) * x) / size + moved[0] * height + (height - 1) / 2
        columns = (np.sin(angle) * y + np.cos(angle) * x) / size + moved[1] * width
        return _bilinear(images, rows, columns + (width - 1) / 2)

    return augment


def _bilinear(images, rows, columns):
    """`images` read at fractional places, (images, height, width) each; keeps the dtype."""
    height, width = images.shape[1:3]
    rows, columns = np.clip(rows, 0, height - 1), np.clip(columns, 0, width - 1)
    top, left = np.floor(rows).astype(int), np.floor(columns).astype(int)
    bottom, right = np.minimum(top + 1, height - 1), np.minimum(left + 1, width - 1)
    down, across = (rows - top)[..., None], (columns - left)[..., None]
    which = np.arange(len(images))[:, None, None]
    upper = (1 - across) * images[which, top, left] + across * images[which, top, right]
    lower = (1 - across) * images[which, bottom, left] + across * images[which, bottom, right]
    mixed = (1 - down) * upper + down * lower
    return (np.round(mixed) if images.dtype == np.uint8 else mixed).astype(images.dtype)
