"""Attention in few bytes: what the explorer's page holds, and how it is read back."""

import base64
import struct
import zlib

import numpy as np

LEVELS = (256, 192, 128, 96, 64, 48, 32, 24, 16, 12, 8)


def quantize(weights):
    """Rows of attention as bytes: square roots, relative to that of the largest in the row.

    Square roots, because most weights are small and all that the eye sees is their order. The
    value is (code / 255)² · (scale / 255)².

    Args:
        weights: array of shape (..., rows, columns), values in [0, 1].

    Returns:
        (codes, scales): uint8 of the same shape, and of shape (..., rows).
    """
    roots = np.sqrt(np.asarray(weights, "float32").clip(0, 1))
    scales = np.ceil(roots.max(axis=-1) * 255).clip(1, 255)
    codes = np.rint(roots * (255 * 255 / scales[..., None]))
    return codes.clip(0, 255).astype("uint8"), scales.astype("uint8")


def dequantize(codes, scales, levels=256):
    """The weights that `quantize` and `coarser` stand for, as the page computes them."""
    root = codes.astype("float32") / (levels - 1) * (scales[..., None].astype("float32") / 255)
    return root**2


def coarser(codes, levels):
    """Codes 0..255 in fewer levels, from 0 to levels - 1."""
    return np.rint(codes * np.float32((levels - 1) / 255)).astype("uint8")


def fit(codes, limit):
    """The finest levels whose compressed codes take `limit` bytes of text at most.

    Returns:
        (levels, text, largest): `None` for both where not even the fewest levels fit, and then
        the length of the text that these would take.
    """
    text = ""
    for levels in LEVELS:
        text = deflated(coarser(codes, levels))
        if len(text) <= limit:
            return levels, text, len(text)
    return None, None, len(text)


def deflated(array):
    """The bytes of an array, compressed (zlib), as base64."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 7)).decode()


def png(pixels):
    """A picture as a data URL, without an imaging library.

    Args:
        pixels: uint8 array of shape (height, width, 3).
    """
    height, width, _ = pixels.shape
    # Differences to the pixel on the left (filter 1) compress photographs to about two thirds.
    left = np.concatenate([np.zeros_like(pixels[:, :1]), pixels[:, :-1]], axis=1)
    rows = (pixels - left).reshape(height, -1)
    rows = np.concatenate([np.ones((height, 1), "uint8"), rows], axis=1)

    def chunk(kind, content):
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")
    data = b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)
    return "data:image/png;base64," + base64.b64encode(data).decode()
