"""Digests that carry equality: two things are equal exactly when their digests are, and no query decodes a list.

All are sha256, 32 bytes.
"""

from __future__ import annotations

import hashlib
import json
import sys
from array import array
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from bellwether.errors import TableError

DEPTH = 100
"""Levels of lists and objects that are compared as values: a limit of our own, so no digest hangs on a call stack."""


def ids_sha256(ids: Sequence[int]) -> bytes:
    """Return the digest of token ids: of their bytes as little-endian u32."""
    packed = array("I", ids)
    if packed.itemsize != 4:
        raise TableError("this platform's unsigned int is not 32 bits", next_step="Report the platform.")
    if sys.byteorder == "big":
        packed.byteswap()
    return hashlib.sha256(packed.tobytes()).digest()


def text_sha256(text: str) -> bytes:
    """Return the digest of a text: of its bytes in UTF-8. Lone surrogates count as they are."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def pieces_sha256(pieces: Sequence[str]) -> bytes:
    """Return the digest of streamed pieces, in order, empty ones included."""
    return _of_json(list(pieces))


def message_sha256(
    content: str | None, reasoning_content: str | None, tool_calls: Sequence[Mapping[str, str]]
) -> bytes:
    """Return the digest under which two messages are equal: same texts (empty and null alike), same calls in order."""
    return _of_json(_message(content, reasoning_content, [[call["name"], call["arguments"]] for call in tool_calls]))


def message_value_sha256(
    content: str | None, reasoning_content: str | None, tool_calls: Sequence[Mapping[str, str]]
) -> bytes:
    """Return the digest under which two messages mean the same: as `message_sha256`, arguments compared as values.

    Key order, white space, escapes and the spelling of a number (`1e2`, `100.0`) do not count; a number's exact value
    does. Of a repeated key the last counts. Arguments count as text when they are no JSON, or nested deeper than
    `DEPTH`.
    """
    calls = [[call["name"], _value(call["arguments"])] for call in tool_calls]
    return _of_json(_message(content, reasoning_content, calls))


def message_bare_sha256(
    content: str | None, reasoning_content: str | None, tool_calls: Sequence[Mapping[str, str]]
) -> bytes:
    """Return the digest under which two messages differ in white space at most: as `message_value_sha256`, all white
    space of content and reasoning_content left out."""
    content, reasoning_content = ("".join((text or "").split()) for text in (content, reasoning_content))
    return message_value_sha256(content, reasoning_content, tool_calls)


def _message(content: str | None, reasoning_content: str | None, calls: list[list[Any]]) -> dict[str, Any]:
    return {"content": content or "", "reasoning_content": reasoning_content or "", "tool_calls": calls}


def _of_json(value: Any) -> bytes:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()


class _Number(str):
    """The exact value of a JSON number, spelt in one way."""


def _value(arguments: str) -> list[Any]:
    try:
        value = json.loads(arguments, parse_int=_number, parse_float=_number, parse_constant=_no_json)
        return ["value", _canonical(value, DEPTH)]
    except (ValueError, InvalidOperation, RecursionError):  # of these Decimal's is for exponents beyond 18 digits
        return ["text", arguments]


def _no_json(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _number(spelling: str) -> _Number:
    sign, digits, exponent = Decimal(spelling).as_tuple()
    significant = "".join(map(str, digits)).lstrip("0")
    short = significant.rstrip("0")
    if not short:
        return _Number("0")
    return _Number(f"{'-' * sign}{short}e{exponent + len(significant) - len(short)}")


def _canonical(value: Any, levels: int) -> Any:
    """Return `value` with numbers that no string can be taken for; a flag is no number.

    Raises:
        ValueError: `value` is nested deeper than `levels`.
    """
    if isinstance(value, _Number):
        return {"number": str(value)}
    if not isinstance(value, (dict, list)):
        return value
    if levels == 0:
        raise ValueError("nested too deep")
    if isinstance(value, list):
        return [_canonical(member, levels - 1) for member in value]
    return {"object": {key: _canonical(member, levels - 1) for key, member in value.items()}}
