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
_LENGTH = struct.Struct("<Q")
_HEADER, _FOOTER = 12, 4


class TFRecordShard:
    """The records of one TFRecord file, by number.

    The offsets are found on first use, by hopping from header to header.

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
                (length,) = _LENGTH.unpack(os.pread(file.fileno(), _LENGTH.size, position))
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
                f"the file must hold {self._count} records and holds {len(self._offsets)}; "
                "prepare or copy the dataset again"
            )
        start, length = (int(value) for value in self._offsets[index])
        with open(self.path, "rb", buffering=0) as file:
            return os.pread(file.fileno(), length, start)


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
