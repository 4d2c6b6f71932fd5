"""Numbers of variable length, as packed vocabularies and protocol buffers write them."""

from __future__ import annotations


def read_varint(data: bytes, place: int) -> tuple[int, int]:
    """Return the number at `place`, seven bits a byte and the lowest first, and the place after it.

    Raises:
        IndexError: the data ends inside the number.
    """
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
