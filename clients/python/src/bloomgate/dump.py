"""The file format of a filter's dump: the records of BF.SCANDUMP in sequence.

    8 bytes      "BLOOMDMP"
    each record: 8 bytes iterator, 8 bytes length (both unsigned, little-endian), the record's data,
                 4 bytes CRC-32 of all of these
    the end:     a record with iterator 0 and no data

A record has up to 1 MiB of bits, or 16 MiB in RedisBloom's layout."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from .errors import BadDump

MAGIC = b"BLOOMDMP"
HEAD = struct.Struct("<QQ")
CRC = struct.Struct("<I")

MOST_BYTES = 512 << 20
"""The longest record: the server's default limit for strings."""


def write_record(file: BinaryIO, iterator: int, data: bytes) -> None:
    head = HEAD.pack(iterator, len(data))
    file.write(head)
    file.write(data)
    file.write(CRC.pack(zlib.crc32(data, zlib.crc32(head))))


def exactly(file: BinaryIO, count: int) -> bytes:
    parts = []
    while count:
        part = file.read(count)
        if not part:
            raise BadDump("the file ends before the dump does")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read_records(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Reads the records of a file. Raises BadDump if it is not a dump, is damaged or truncated."""
    if exactly(file, len(MAGIC)) != MAGIC:
        raise BadDump("this file is not a dump of a filter")
    while True:
        head = exactly(file, HEAD.size)
        iterator, length = HEAD.unpack(head)
        if length > MOST_BYTES:
            raise BadDump(f"a record of {length} bytes: the file is damaged")
        data = exactly(file, length)
        if CRC.unpack(exactly(file, CRC.size)) != (zlib.crc32(data, zlib.crc32(head)),):
            raise BadDump("the checksum of a record is wrong: the file is damaged")
        if iterator == 0:
            return
        yield iterator, data
