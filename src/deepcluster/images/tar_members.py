"""What lies where in a tar file: names and byte ranges, read from the headers alone.

Nothing is extracted, and a name is only a name: it never becomes a path on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO, Literal, NamedTuple

_BLOCK = 512
_END = bytes(_BLOCK)
_MOST_METADATA = 2**20  # a name longer than this is an attack or an accident
_WITHOUT_DATA = b"123456"  # hard and symbolic links, devices, folders and pipes


class Damaged(Exception):  # noqa: N818 - a verdict on a file, not a fault of the program
    """The tar file cannot be read from byte `offset` on."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"damaged from byte {offset} on")
        self.offset = offset


class Member(NamedTuple):
    """One entry of a tar file."""

    name: str
    """As it is written; bytes that are no UTF-8 are kept as surrogates."""
    offset: int
    """Where its bytes begin in the tar file."""
    size: int
    kind: Literal["file", "link", "sparse", "other"]


def members(file: BinaryIO) -> Iterator[Member]:
    """Every entry in the order of the file, also past the end mark if more tars are appended.

    Long names of GNU and of POSIX (pax) are understood. Raises `Damaged` where a header does not
    match its checksum, makes no sense, or promises more bytes than there are.
    """
    end = file.seek(0, os.SEEK_END)
    common: dict[str, bytes] = {}
    begun, said = 0, dict[str, bytes]()  # what was said so far of the entry that begins at `begun`
    at = 0
    while block := _read(file, at, _BLOCK):
        if block == _END[: len(block)]:
            at = begun = at + len(block)
            continue
        try:
            kind, size, name = _header(block)
            data = at + _BLOCK
            if kind in b"xgLK":
                text = _metadata(file, data, size)
                if kind == b"x":
                    said |= _records(text)
                elif kind == b"g":
                    common |= _records(text)
                elif kind == b"L":
                    said["path"] = text.rstrip(b"\0")
                at = data + _padded(size)
                continue
            known = common | said
            size = int(known.get("size", size))
            name = known.get("GNU.sparse.name", known.get("path", name))
            is_sparse = kind == b"S" or any(key.startswith("GNU.sparse.") for key in known)
            if kind == b"S":
                data = _past_sparse_map(file, block, data)
            if kind in _WITHOUT_DATA:
                size = 0
            if size < 0 or data + size > end:
                raise ValueError("more than the file holds")
        except ValueError as error:
            raise Damaged(begun) from error
        member = Member(name.decode(errors="surrogateescape"), data, size, _kind(kind))
        yield member._replace(kind="sparse") if is_sparse else member
        at = begun = data + _padded(size)
        said = {}
    if said:
        raise Damaged(begun)


def _kind(flag: bytes) -> Literal["file", "link", "sparse", "other"]:
    if flag in b"\x0007":
        return "file"
    return "link" if flag in b"12" else "other"


def _read(file: BinaryIO, at: int, size: int) -> bytes:
    file.seek(at)
    return file.read(size)


def _header(block: bytes) -> tuple[bytes, int, bytes]:
    """Type flag, size and name; raises ValueError where the block is no header."""
    if len(block) < _BLOCK:
        raise ValueError("cut")
    # The checksum is taken with its own eight bytes as spaces.
    if sum(block) - sum(block[148:156]) + 8 * 32 != _number(block[148:156]):
        raise ValueError("checksum")
    name = block[:100].partition(b"\0")[0]
    if block[257:263] == b"ustar\0":
        prefix = block[345:500].partition(b"\0")[0]
        name = prefix + b"/" + name if prefix else name
    kind = block[156:157]
    if kind in b"\x000" and name.endswith(b"/"):
        kind = b"5"  # before POSIX a folder was a file whose name ends so
    return kind, _number(block[124:136]), name


def _number(field: bytes) -> int:
    """Octal digits, or GNU's way with numbers that are too large for them."""
    if field[0] & 0x80:
        return int.from_bytes(field[1:]) if field[0] == 0x80 else -1
    return int(field.strip(b" \0").partition(b"\0")[0] or b"0", 8)


def _metadata(file: BinaryIO, at: int, size: int) -> bytes:
    if not 0 <= size <= _MOST_METADATA:
        raise ValueError("too much metadata")
    text = _read(file, at, size)
    if len(text) < size:
        raise ValueError("cut")
    return text


def _records(text: bytes) -> dict[str, bytes]:
    """The pax records, each of them `LENGTH KEY=VALUE` and a newline."""
    records: dict[str, bytes] = {}
    while text.strip(b"\0"):
        length = int(text.partition(b" ")[0])
        record, text = text[:length], text[length:]
        key, equals, value = record.partition(b" ")[2].partition(b"=")
        if not equals or not value.endswith(b"\n"):
            raise ValueError("no record")
        records[key.decode(errors="replace")] = value[:-1]
    return records


def _past_sparse_map(file: BinaryIO, block: bytes, data: int) -> int:
    """Where the bytes of an old GNU sparse file begin: its map may fill further blocks."""
    more = block[482]
    while more:
        block = _metadata(file, data, _BLOCK)
        data, more = data + _BLOCK, block[504]
    return data


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK
