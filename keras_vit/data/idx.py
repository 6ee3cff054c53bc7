"""Reading IDX, the file format of MNIST and Fashion-MNIST."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

_UNSIGNED_BYTE = 0x08


def read_idx(path, rank):
    """Reads one IDX file of unsigned bytes, gzipped if its name ends in .gz.

    The layout is two zero bytes, the type code, the rank, then the rank big-endian 32-bit
    sizes and the bytes in row-major order.

    Args:
        path: the file.
        rank: the rank expected: 3 for images, 1 for labels.

    Returns:
        uint8 array of that rank.

    Raises:
        ValueError: unreadable, not IDX, another type or rank, truncated, or too long.
    """
    path = Path(path)
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path} cannot be read; it may be truncated or damaged, fetch it again. "
            f"Received: {error}"
        ) from error
    header = 4 + 4 * rank
    expected_magic = bytes([0, 0, _UNSIGNED_BYTE, rank])
    if data[:4] != expected_magic:
        raise ValueError(
            f"{path} is not an IDX file of {rank}-dimensional unsigned bytes: it must begin "
            f"with {expected_magic.hex(' ')}. Received: {data[:4].hex(' ') or 'an empty file'}"
        )
    if len(data) < header:
        raise ValueError(
            f"{path} is truncated inside its header of {header} bytes; fetch it again. "
            f"Received: {len(data)} bytes"
        )
    sizes = struct.unpack(f">{rank}I", data[4:header])
    if len(data) - header != math.prod(sizes):
        kind = "truncated" if len(data) - header < math.prod(sizes) else "too long"
        raise ValueError(
            f"{path} is {kind}: its header promises sizes {sizes}, {math.prod(sizes)} bytes; "
            f"fetch it again. Received: {len(data) - header} bytes after the header"
        )
    # A copy, since an array over bytes is read-only and keeps the header alive.
    return np.frombuffer(data, dtype=np.uint8, offset=header).reshape(sizes).copy()
