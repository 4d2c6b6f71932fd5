"""What tells the layers of two prompts apart, for the rows whose ids differ from the reference's.

Ids say that two prompts differ, and not where: the same decoder reads both, and both lose what a tokenizer adds of its
own, the special ids they begin with and the ids of an end they end with. Texts that come out equal leave the tokenizer;
equal ids without that leave the special tokens. The digests are compared in SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
from tokenizers import Tokenizer

from bellwether.corpora.store import sql_path, sql_text
from bellwether.digests import ids_sha256, text_sha256
from bellwether.gateways.answer import Served
from bellwether.layout import reference_table
from bellwether.params import Manifest

Row = dict[str, Any]


@dataclass(slots=True)
class Localiser:
    """One checkpoint's references and its decoder, which is loaded when the first prompt differs."""

    root: Path
    manifest: Manifest
    served: Served
    _decoder: Decoder | None = field(default=None, init=False)

    def add(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Yield the rows, those whose prompt differs from every deciding reference with what tells the layers apart."""
        baselines = self._baselines({row["case_id"] for row in rows if row.get("prompt_ids") is not None})
        for row in rows:
            known = baselines.get(row["case_id"], {}) if row.get("prompt_ids") is not None else {}
            if known and row["prompt_sha256"] not in known:
                yield row | self._apart(row, next(iter(known.values())))
            else:
                yield row | {"prompt_text": None}

    def _apart(self, row: Row, baseline: list[int]) -> Row:
        self._decoder = self._decoder or decoder_of(self.served.folder, self.served.eos_ids)
        decoder, ids = self._decoder, row["prompt_ids"]
        if decoder is None:
            return {}
        text = decoder.text(ids)
        return {
            "prompt_text": text,
            "prompt_text_sha256": text_sha256(text),
            "baseline_text_sha256": text_sha256(decoder.text(baseline)),
            "bare_sha256": ids_sha256(decoder.bare(ids)),
            "baseline_bare_sha256": ids_sha256(decoder.bare(baseline)),
        }

    def _baselines(self, case_ids: Iterable[str]) -> dict[str, dict[bytes, list[int]]]:
        """Return case → digest → prompt ids, of the deciding source as the request says it."""
        wanted = ", ".join(map(sql_text, sorted(case_ids)))
        if not wanted:
            return {}
        path = reference_table(self.root, self.manifest.slug, "render")
        with duckdb.connect() as connection:
            rows = connection.execute(
                f"select case_id, prompt_sha256, prompt_ids from read_parquet({sql_path(path)})"
                f" where case_id in ({wanted}) and prompt_ids is not null and source = ? and (normalisation is null"
                " or normalisation in ('both', if(source like 'vendor-code:%', 'vllm', 'raw')))"
                " order by case_id, encoder",
                [self.manifest.authority["render"][0]],
            ).fetchall()
        found: dict[str, dict[bytes, list[int]]] = {}
        for case_id, sha256, ids in rows:
            found.setdefault(case_id, {})[sha256] = ids
        return found


@dataclass(frozen=True, slots=True)
class Decoder:
    """A tokenizer's decoder, special tokens kept."""

    tokenizer: Tokenizer
    special: frozenset[int]
    ends: frozenset[int]
    """Ids on which generation ends."""

    def text(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def bare(self, ids: list[int]) -> list[int]:
        """Return the ids without the special ones they begin with, and the ends they end with."""
        begin, end = 0, len(ids)
        while begin < end and ids[begin] in self.special:
            begin += 1
        while begin < end and ids[end - 1] in self.ends:
            end -= 1
        return ids[begin:end]


def decoder_of(folder: Path, ends: Iterable[int]) -> Decoder | None:
    """Return the decoder of a snapshot, `ends` being the ids on which generation ends.

    None when it has no tokenizer.json, and texts stay unknown.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    tokenizer = Tokenizer.from_file(str(path))
    special = (number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special)
    return Decoder(tokenizer, frozenset(special), frozenset(ends))
