"""Random access to the files of TensorFlow Datasets: TFRecord and ArrayRecord, one by one.

A pipeline that shuffles all of a set and continues anywhere needs record 123,456 at once, not the
123,456 records before it. Neither format needs TensorFlow for that.
"""

import functools
import os
import struct

import numpy as np

# A record: its length, the checksum of that, the bytes, their checksum; all little-endian.
# tensorflow/core/lib/io/record_writer.h
_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_HEADER, _FOOTER = 12, 4


class TFRecordShard:
    """The records of one TFRecord file, by number.

    The offsets are found on first use, by hopping from header to header; a length that is not the
    one its checksum belongs to ends the file there. The checksum of a record's bytes is compared
    where the package google-crc32c is installed: in Python it takes longer than the decoding.

    Args:
        path: the file.
        count: how many records it must hold.
    """

    def __init__(self, path, count):
        self.path, self._count = path, count

    @functools.cached_property
    def _offsets(self):
        size = os.path.getsize(self.path)
        offsets, position = [], 0
        with open(self.path, "rb", buffering=0) as file:
            while position + _HEADER <= size:
                header = os.pread(file.fileno(), _HEADER, position)
                stored, checksum = header[: _LENGTH.size], header[_LENGTH.size :]
                if _CHECKSUM.pack(_of_length(stored)) != checksum:
                    break
                (length,) = _LENGTH.unpack(stored)
                offsets.append((position + _HEADER, length))
                position += _HEADER + length + _FOOTER
        # Of a file that is cut off, the last record is not whole.
        whole = [record for record in offsets if sum(record) + _FOOTER <= size]
        return np.array(whole, dtype=np.int64).reshape(-1, 2)

    def read(self, index):
        """The bytes of a record.

        Raises:
            ValueError: the file does not hold what it should.
        """
        if index >= len(self._offsets) or len(self._offsets) > self._count:
            raise ValueError(
                f"the file must hold {self._count} records and holds {len(self._offsets)} whole "
                "ones; prepare or copy the dataset again"
            )
        start, length = (int(value) for value in self._offsets[index])
        with open(self.path, "rb", buffering=0) as file:
            record = os.pread(file.fileno(), length + _FOOTER, start)
        record, checksum = record[:length], record[length:]
        crc32c = _fast_crc32c()
        if crc32c is not None and _CHECKSUM.pack(_masked(crc32c(record))) != checksum:
            raise ValueError("its checksum is that of other bytes; copy the dataset again")
        return record


@functools.cache
def _fast_crc32c():
    """The CRC-32C of bytes, or None where nothing computes it at the speed of reading."""
    try:
        import google_crc32c
    except ImportError:
        return None
    return google_crc32c.value if google_crc32c.implementation == "c" else None


def _masked(checksum):
    """As it is stored: tensorflow/core/lib/hash/crc32c.h."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _of_length(header):
    """The masked CRC-32C of the few bytes of a length."""
    table, checksum = _crc32c_table(), 0xFFFFFFFF
    for byte in header:
        checksum = table[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    return _masked(checksum ^ 0xFFFFFFFF)


@functools.cache
def _crc32c_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ 0x82F63B78 * (value & 1)
        table.append(value)
    return table


class ArrayRecordShard:
    """The records of one ArrayRecord file, by number; arguments as of `TFRecordShard`.

    Raises:
        ImportError: the package array_record is not installed.
        ValueError: another number of records.
    """

    def __init__(self, path, count):
        self.path, self._count = path, count

    @functools.cached_property
    def _reader(self):
        try:
            from array_record.python.array_record_module import ArrayRecordReader
        except ImportError as error:
            raise ImportError(
                f"Reading {self.path} needs the package array_record. Install it with: "
                "pip install array_record"
            ) from error
        try:
            reader = ArrayRecordReader(str(self.path))
            found = reader.num_records()
        except Exception as error:  # the library raises nothing more specific
            raise ValueError(f"{self.path} cannot be read. Received: {error}") from error
        if found != self._count:
            raise ValueError(
                f"{self.path} must hold {self._count} records; prepare or copy the dataset again. "
                f"Received: {found} records"
            )
        return reader

    def read(self, index):
        """The bytes of a record."""
        return self._reader.read([int(index)])[0]


FORMATS = {"tfrecord": TFRecordShard, "array_record": ArrayRecordShard}
