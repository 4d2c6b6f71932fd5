"""Messages that stand in tables: the same tomorrow, on another machine."""

from __future__ import annotations

import pytest

from bellwether.witnesses.outcome import REASON_LENGTH, lasting


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("<object object at 0x7f01a3b4c5d6>", "<object object at …>"),
        ("no /home/me/fixtures/x/inputs/tokenizer.json", "no <model>/tokenizer.json"),
        ("request 123e4567-e89b-12d3-a456-426614174000 failed", "request … failed"),
        ("id chatcmpl-0123456789abcdef0123", "id chatcmpl-…"),
        ("expected 400 tokens, got 12345678", "expected 400 tokens, got 12345678"),
        ("decade of facade", "decade of facade"),
    ],
)
def test_what_belongs_to_one_run_is_left_out(said: str, kept: str) -> None:
    """Addresses, random names and folders; numbers and words stay."""
    assert lasting(said, {"/home/me/fixtures/x/inputs": "<model>"}) == kept


def test_a_message_is_bounded_and_can_be_stored() -> None:
    """Half of a surrogate pair is no UTF-8."""
    assert lasting("\ud800" + "x" * 9999, {}) == "?" + "x" * (REASON_LENGTH - 1)
