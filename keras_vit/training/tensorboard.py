"""Scalars for TensorBoard, without TensorFlow and without TensorBoard.

A file of events is a sequence of records, each a length, the length's checksum, a protocol buffer
and its checksum (tensorflow/core/lib/io/record_writer.cc); of the buffers (`event.proto` and
`summary.proto`) scalars need only a few fields, which are put together here.
"""

import itertools
import os
import pathlib
import socket
import struct
import time

_numbers = itertools.count()  # two writers of one second in one process get two files


class TensorBoardWriter:
    """Writes scalars to a new file of events.

    Args:
        folder: where TensorBoard looks.
        first_step: what earlier files hold from this step on, TensorBoard forgets: a run that
            goes on from a checkpoint writes it again.
    """

    def __init__(self, folder, first_step=0):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}"
        self.path = folder / f"{name}.{os.getpid()}.{next(_numbers)}"
        self._append(_text(3, "brain.Event:2"), step=0)
        if first_step:
            self._append(_message(7, _integer(1, 1)), step=first_step)  # SessionLog START

    def write(self, step, scalars):
        """Writes one value for each name."""
        values = b"".join(
            _message(1, _text(1, name) + _float(2, value)) for name, value in scalars.items()
        )
        self._append(_message(5, values), step)

    def _append(self, content, step):
        event = b"\x09" + struct.pack("<d", time.time()) + _integer(2, step) + content
        length = struct.pack("<Q", len(event))
        with self.path.open("ab") as file:
            file.write(length + _checksum(length) + event + _checksum(event))


def _varint(value):
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def _integer(field, value):
    return _varint(field << 3) + _varint(value)


def _message(field, content):
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field, value):
    return _message(field, value.encode())


def _float(field, value):
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _crc32c_table():
    """Of the Castagnoli polynomial, reflected."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc32c_table()


def _checksum(data):
    """The CRC-32C of the data, rotated and shifted as the format asks."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
