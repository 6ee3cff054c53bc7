"""Decoding image files into one array, with every unreadable file found in one go."""

import numpy as np

from keras_vit.data.read_images import rgb_or_gray
from keras_vit.data.resize import check_memory, import_pillow

_EXIF_ORIENTATION = 0x0112
_LISTED = 10  # paths shown in an error; the count tells the rest


def decode_images(paths, *, image_size, channels, skip_corrupt):
    """Decodes image files to uint8.

    The EXIF orientation is applied; a resize is bilinear and ignores the aspect ratio, as
    in the authors' evaluation.

    Args:
        paths: the files.
        image_size: (height, width) to resize to, or None if all have the same size.
        channels: 3 for RGB, 1 for grayscale.
        skip_corrupt: whether to leave out unreadable files instead of raising.

    Returns:
        (images, readable): uint8 of shape (readable images, height, width, channels), and
        a boolean array that tells which paths they are.

    Raises:
        ValueError: unreadable files, different sizes without `image_size`, or too much for
            memory.
        ImportError: Pillow is not installed.
    """
    import_pillow()
    reasons = {}
    size = image_size or _common_size(paths, reasons)
    if size is not None:
        check_memory((len(paths), *size, channels))
    images = np.empty((len(paths), *(size or (1, 1)), channels), dtype=np.uint8)
    readable = np.ones(len(paths), dtype=bool)
    count = 0
    for index, path in enumerate(paths):
        if path not in reasons:
            pixels = _attempt(_decode, path, reasons, size, channels)
        readable[index] = path not in reasons
        if readable[index]:
            images[count] = pixels
            count += 1
    if reasons and not skip_corrupt:
        raise ValueError(_corrupt_message(reasons, len(paths)))
    return images[:count], readable


def _attempt(function, path, reasons, *args):
    """Calls function(path, *args); a failure is recorded under the path."""
    try:
        return function(path, *args)
    except MemoryError:
        raise
    # Pillow's decoders answer damaged files with errors of many unrelated types. None is
    # swallowed: each is reported with its path.
    except Exception as error:
        reasons[path] = f"{type(error).__name__}: {error}"
        return None


def _common_size(paths, reasons):
    """The (height, width) that all readable files share; None if none is readable."""
    first = None
    for path in paths:
        size = _attempt(_probe, path, reasons)
        if size is None:
            continue
        if first is None:
            first = (path, size)
        elif size != first[1]:
            raise ValueError(
                "The images differ in size, so image_size is needed, such as image_size=224. "
                f"Received: {first[0]} of {first[1][0]}x{first[1][1]} and {path} of "
                f"{size[0]}x{size[1]} (height x width)"
            )
    return first[1] if first else None


def _probe(path):
    """The (height, width) of a file after orientation, from its header alone."""
    with import_pillow().open(path) as image:
        width, height = image.size
        sideways = image.getexif().get(_EXIF_ORIENTATION) in (5, 6, 7, 8)
    return (width, height) if sideways else (height, width)


def _decode(path, size, channels):
    pil_image = import_pillow()
    with pil_image.open(path) as image:
        image = rgb_or_gray(image, channels)
        if image.size != (size[1], size[0]):
            image = image.resize((size[1], size[0]), pil_image.Resampling.BILINEAR)
        return np.asarray(image).reshape(*size, channels)


def _corrupt_message(reasons, total):
    lines = [f"{len(reasons)} of {total} images cannot be read. Received:"]
    lines += [f"  {path}: {reason}" for path, reason in list(reasons.items())[:_LISTED]]
    if len(reasons) > _LISTED:
        lines.append(f"  and {len(reasons) - _LISTED} more")
    lines.append(
        "Repair or remove them, or pass skip_corrupt=True (--skip-corrupt on the command "
        "line) to leave them out."
    )
    return "\n".join(lines)
