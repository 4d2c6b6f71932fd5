"""Encode outside the main thread, whose heap is fragmented from loading: the same work there takes more processor time.

Another thread gets memory of its own from the allocator. The caller waits, and a signal such as a time limit's still
reaches it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tokenizers import Tokenizer

_thread = ThreadPoolExecutor(1, "encode")


def encode_aside(tokenizer: Tokenizer, texts: Sequence[str]) -> list[bytes]:
    """Return the ids of each text as native u32 bytes. Special tokens are read where spelled, and never added."""
    return _thread.submit(_encode, tokenizer, list(texts)).result()


def _encode(tokenizer: Tokenizer, texts: list[str]) -> list[bytes]:
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)  # no offsets: a quarter less time
    return [array("I", encoding.ids).tobytes() for encoding in encodings]
