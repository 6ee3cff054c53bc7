"""Size and channels of images in memory: what is asked for, and how to get there."""

import operator

import numpy as np

MAX_BYTES = 4 * 2**30  # a dataset lives in memory; past this the user is told first

# ITU-R 601 luma in 16-bit fixed point, as Pillow's convert("L"): 0.299, 0.587, 0.114.
_LUMA = np.array([19595, 38470, 7471], dtype=np.uint32)


def parse_image_size(image_size):
    """Returns (height, width) in pixels from an int or a pair, or None from None.

    Raises:
        ValueError: anything but positive whole numbers.
    """
    if image_size is None:
        return None
    pair = image_size if isinstance(image_size, (tuple, list)) else (image_size, image_size)
    try:
        if any(isinstance(side, (bool, np.bool_)) for side in pair):
            raise TypeError("a truth value is not a size")
        height, width = (operator.index(side) for side in pair)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "image_size must be a positive whole number of pixels or (height, width). "
            f"Received: {image_size!r}"
        ) from error
    if height < 1 or width < 1:
        raise ValueError(
            "image_size must be a positive whole number of pixels or (height, width). "
            f"Received: {image_size!r}"
        )
    return height, width


def check_channels(channels):
    """Raises ValueError unless `channels` is None, 1 (grayscale) or 3 (RGB)."""
    if channels is not None and not (type(channels) is int and channels in (1, 3)):
        raise ValueError(
            "channels must be 1 (grayscale), 3 (RGB) or None (as they come). "
            f"Received: {channels!r}"
        )


def check_memory(shape, itemsize=1):
    """Raises ValueError if an array of this shape would pass `MAX_BYTES`.

    Args:
        shape: (images, height, width, channels).
        itemsize: bytes per value.
    """
    count, height, width, channels = (int(side) for side in shape)
    size = count * height * width * channels * itemsize
    if size > MAX_BYTES:
        raise ValueError(
            f"The dataset is held in memory and may take at most {MAX_BYTES / 2**30:.3g} GiB. "
            f"Received: {count} images of {height}x{width}x{channels}, which is "
            f"{size / 2**30:.3g} GiB. Lower image_size, or use fewer images"
        )


def convert_channels(images, channels):
    """Converts between grayscale and RGB, keeping the dtype.

    Args:
        images: uint8 or float32, shape (images, height, width, channels).
        channels: 1, 3, or None for no change.

    Returns:
        The images with that many channels: grayscale is repeated, RGB becomes its luma.

    Raises:
        ValueError: the images have neither 1 nor 3 channels and should be converted.
    """
    present = images.shape[-1]
    if channels is None or channels == present:
        return images
    if (present, channels) == (1, 3):
        return np.repeat(images, 3, axis=-1)
    if (present, channels) == (3, 1):
        if images.dtype == np.uint8:
            luma = (images.astype(np.uint32) @ _LUMA + 2**15) >> 16
        else:
            luma = images @ (_LUMA / 2**16).astype(np.float32)
        return luma[..., None].astype(images.dtype)
    raise ValueError(
        "Only 1 -> 3 and 3 -> 1 channels can be converted. Received: images with "
        f"{present} channels and channels={channels}; convert them beforehand, or pass "
        "channels=None"
    )


def resize_images(images, size):
    """Resizes images by bilinear interpolation with antialiasing, ignoring aspect ratio.

    Pillow does the work, as it does for folders of images, so that a dataset has the same
    pixels whichever way it is stored and whichever backend trains on it.

    Args:
        images: uint8 or float32, shape (images, height, width, channels).
        size: (height, width) in pixels, or None for no change.

    Returns:
        Images of that size: uint8 rounded, float32 clipped to [0, 1].
    """
    if size is None or tuple(images.shape[1:3]) == tuple(size):
        return images
    pil_image = import_pillow()
    count, channels = images.shape[0], images.shape[-1]
    resized = np.empty((count, *size, channels), dtype=images.dtype)
    width_height = (size[1], size[0])
    for index in range(count):
        # One channel at a time: Pillow has no multi-channel float mode.
        for channel in range(channels):
            plane = pil_image.fromarray(np.ascontiguousarray(images[index, :, :, channel]))
            plane = plane.resize(width_height, pil_image.Resampling.BILINEAR)
            resized[index, :, :, channel] = np.asarray(plane)
    return resized if resized.dtype == np.uint8 else np.clip(resized, 0.0, 1.0, out=resized)


def import_pillow():
    """Returns the `PIL.Image` module, or raises ImportError naming the extra."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "Reading or resizing images needs Pillow. Install it with: "
            'pip install "keras3-vit[data]"'
        ) from error
    return Image
