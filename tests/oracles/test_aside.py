"""Encoding in another thread: the same ids, and whoever waits can be interrupted."""

from __future__ import annotations

import threading
from array import array

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from bellwether.errors import TemplateTimeout
from bellwether.oracles import aside
from bellwether.oracles.aside import encode_aside
from bellwether.oracles.limits import time_limit


@pytest.fixture
def tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "b": 70000}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def test_ids_come_packed_from_another_thread(tokenizer, monkeypatch):
    """One block of u32 per text, in order."""
    encode, threads = aside._encode, []

    def spy(*arguments):
        threads.append(threading.current_thread())
        return encode(*arguments)

    monkeypatch.setattr(aside, "_encode", spy)
    packed = encode_aside(tokenizer, ["a b", "", "c"])
    assert [array("I", ids).tolist() for ids in packed] == [[1, 70000], [], [0]]
    assert threads and threading.main_thread() not in threads


def test_time_limit_reaches_whoever_waits_for_ids(tokenizer, monkeypatch):
    """An encode that takes too long ends recording; what runs later is served all the same."""
    go_on, encode = threading.Event(), aside._encode

    def slow(*arguments):
        go_on.wait()
        return encode(*arguments)

    monkeypatch.setattr(aside, "_encode", slow)
    with pytest.raises(TemplateTimeout, match="on a case"), time_limit(0.1, "a case"):
        encode_aside(tokenizer, ["a"])
    go_on.set()
    assert len(encode_aside(tokenizer, ["a", "b"])) == 2


def test_error_of_the_library_reaches_the_caller(tokenizer):
    """Half a surrogate pair is no text the library takes."""
    with pytest.raises((UnicodeEncodeError, TypeError)):
        encode_aside(tokenizer, ["\ud800"])
