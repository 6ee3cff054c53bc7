"""Reading `tf.train.Example`, the records of TensorFlow Datasets, without TensorFlow.

The format is public: tensorflow/core/example/example.proto and feature.proto in the wire format of
protocol buffers. An example is one map from text to a list of bytes, of floats or of whole numbers.
"""

import struct

import numpy as np

_VARINT, _BYTES = 0, 2  # wire types
_FIXED = {1: 8, 5: 4}  # wire type -> bytes of a value
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3  # fields of Feature


def parse_example(record):
    """The features of a serialized `tf.train.Example`.

    Args:
        record: bytes.

    Returns:
        dict from the name of a feature to a list of bytes, a float32 or an int64 array.

    Raises:
        ValueError: the bytes are no such message.
    """
    try:
        features = {}
        for _, _, message in _fields(memoryview(record)):  # Example.features
            for _, _, entry in _fields(message):  # Features.feature
                parts = {number: value for number, _, value in _fields(entry)}
                features[bytes(parts[1]).decode()] = _values(parts.get(2, b""))
        return features
    except (IndexError, KeyError, TypeError, UnicodeDecodeError, struct.error, ValueError) as error:
        raise ValueError(
            f"The record is no tf.train.Example. Received: {len(record)} bytes ({error})"
        ) from error


def _values(feature):
    for kind, _, message in _fields(feature):
        if kind == _BYTES_LIST:
            return [bytes(value) for _, _, value in _fields(message)]
        if kind == _FLOAT_LIST:
            return _floats(message)
        if kind == _INT64_LIST:
            return _integers(message)
    return []


def _floats(message):
    # Packed as one block, or each value by itself.
    blocks = [bytes(value) for _, _, value in _fields(message)]
    return np.frombuffer(b"".join(blocks), dtype="<f4")


def _integers(message):
    found = []
    for _, wire_type, value in _fields(message):
        if wire_type == _VARINT:
            found.append(value)
            continue
        position = 0
        while position < len(value):
            number, position = _varint(value, position)
            found.append(number)
    # Negative numbers stand as their two's complement in 64 bits.
    return np.array(found, dtype=np.uint64).astype(np.int64)


def _fields(message):
    """(field number, wire type, value) of each field: an int for varints, else a memoryview."""
    position, end = 0, len(message)
    while position < end:
        tag, position = _varint(message, position)
        wire_type = tag & 7
        if wire_type == _VARINT:
            value, position = _varint(message, position)
            yield tag >> 3, wire_type, value
            continue
        if wire_type == _BYTES:
            size, position = _varint(message, position)
        elif wire_type in _FIXED:
            size = _FIXED[wire_type]
        else:
            raise ValueError(f"wire type {wire_type}")
        if position + size > end:
            raise ValueError("cut off")
        yield tag >> 3, wire_type, message[position : position + size]
        position += size


def _varint(message, position):
    """(value, next position): seven bits a byte, the lowest first."""
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
