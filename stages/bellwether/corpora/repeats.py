"""The repeat rule: of cases that say the same, the first one stays.

Datasets repeat themselves, and a repeated case would count twice in every figure drawn from the corpus. An importer
yields all its cases in build order and sends them through `drop_repeats` once, so the rule stands in one place and what
it drops stays on record. Two runs know nothing of each other: equal cases of two importers both stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from bellwether.case import Case, LeftOut, Repeat
from bellwether.errors import CorpusError


def drop_repeats(items: Iterable[Case | Repeat | LeftOut]) -> Iterator[Case | Repeat | LeftOut]:
    """Yield `items` in their order, each case that repeats an earlier one replaced by a `Repeat`.

    A case repeats another of its kind when the texts that make it up are equal, key order included: `request` for
    render, `request` and `message` for parse, else whichever of `message`, `text`, `ids` and `requires` are set. Name,
    set, origin and notes do not count. `Repeat.repeats` is the `case_id` of the first such case, never of a repeat.
    What is no case passes unchanged. Only a digest and a few words are kept of each case.

    Raises:
        CorpusError: two cases of one kind have one name, whether kept or dropped. Names both.
    """
    first: dict[tuple[str, bytes], str] = {}
    named: dict[tuple[str, str], tuple[str, str, str]] = {}
    for item in items:
        if not isinstance(item, Case):
            yield item
            continue
        place = (item.case_id, item.origin.file, item.row)
        earlier = named.setdefault((item.kind, item.name), place)
        if earlier is not place:
            raise CorpusError(
                f"two {item.kind} cases are named {item.name!r}; "
                f"expected one case per name and kind, got {_spell(earlier)} and {_spell(place)}",
                next_step="give one of the two rows another identifier, or make the importer's names tell them apart",
            )
        case_id = first.setdefault((item.kind, _digest(item)), item.case_id)
        if case_id == item.case_id:
            yield item
        else:
            yield Repeat(item.kind, item.set, item.name, repeats=case_id)


def _digest(case: Case) -> bytes:
    # `repr` keeps the fields apart, tells None from "" and, unlike UTF-8, has a spelling for lone surrogates
    said = (case.request, case.message, case.text, case.ids, case.requires)
    return hashlib.sha256(repr(said).encode()).digest()


def _spell(place: tuple[str, str, str]) -> str:
    case_id, file, row = place
    return f"{case_id} ({file}, row {row})"
