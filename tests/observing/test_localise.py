"""What tells the layers of two prompts apart: texts by one decoder, and ids without what a tokenizer adds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bellwether.digests import ids_sha256
from bellwether.gateways.answer import Served
from bellwether.layout import reference_table
from bellwether.observing.localise import Localiser, decoder_of
from bellwether.params import read_manifest
from bellwether.tables import REFERENCE, TableWriter
from support import ROOT, snapshot

SLUG = "llama-3.1-8b-instruct"
BOS, HEADER, END_HEADER, EOT, EOM = 128000, 128006, 128007, 128009, 128008
PROMPT = [BOS, HEADER, 882, END_HEADER, 271, 13347, EOT, HEADER, 78191, END_HEADER, 271]
"""A user says `Hi`: special ids by the checkpoint's tokenizer_config.json, others by its vocabulary."""


@pytest.fixture(scope="module")
def localiser(tmp_path_factory: pytest.TempPathFactory) -> Localiser:
    root = tmp_path_factory.mktemp("root")
    with TableWriter(reference_table(root, SLUG, "render"), REFERENCE) as writer:
        writer.write_rows(
            {"case_id": "render/common/a", "source": "hf-template", "normalisation": normalisation, "prompt_ids": ids}
            | {"prompt_sha256": ids_sha256(ids)}
            for normalisation, ids in (("raw", PROMPT), ("vllm", [BOS]))
        )
    served = Served(SLUG, "m", snapshot(SLUG), eos_ids=(EOT, EOM))
    return Localiser(root, read_manifest(ROOT, SLUG), served)


def apart(localiser: Localiser, ids: list[int], case_id: str = "render/common/a") -> tuple[bool, bool] | None:
    """Return whether texts, and ids without what a tokenizer adds, are equal; None for a row that is left alone."""
    row: dict[str, Any] = {"case_id": case_id, "prompt_ids": ids, "prompt_sha256": ids_sha256(ids)}
    [found] = localiser.add([row])
    if found.get("baseline_text_sha256") is None:
        return None
    return (
        found["prompt_text_sha256"] == found["baseline_text_sha256"],
        found["bare_sha256"] == found["baseline_bare_sha256"],
    )


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        (PROMPT[1:], (False, True)),
        ([BOS, *PROMPT], (False, True)),
        ([*PROMPT, EOT], (False, True)),
        ([*PROMPT[:6], *PROMPT[7:]], (False, False)),
        (PROMPT[:7], (False, False)),
        ([*PROMPT[:5], 39, 72, *PROMPT[6:]], (True, False)),
        ([*PROMPT[:5], 9906, *PROMPT[6:]], (False, False)),
    ],
    ids=["no bos", "two bos", "an eos", "one less inside", "no generation prompt", "other ids", "another word"],
)
def test_layers_are_told_apart(localiser: Localiser, ids: list[int], found: tuple[bool, bool]) -> None:
    """`Hi` is one id, or `H` and `i`: equal texts. A special id inside is the template's."""
    assert apart(localiser, ids) == found


def test_an_equal_prompt_is_left_alone(localiser: Localiser) -> None:
    """And needs no decoder."""
    assert apart(localiser, PROMPT) is None


def test_the_other_normalisation_is_no_baseline(localiser: Localiser) -> None:
    """A prompt is judged as the request says it."""
    assert apart(localiser, [BOS]) == (False, False)


def test_without_a_reference_there_is_nothing_to_tell(localiser: Localiser) -> None:
    """Nor for what has no prompt."""
    assert apart(localiser, PROMPT, "render/common/unknown") is None
    assert list(localiser.add([{"case_id": "tokenize/common/a"}])) == [
        {"case_id": "tokenize/common/a", "prompt_text": None}
    ]


def test_a_snapshot_without_a_tokenizer_has_no_decoder(tmp_path: Path) -> None:
    """Texts stay unknown."""
    assert decoder_of(tmp_path, ()) is None
