"""The reviewed lists: read strictly, with what is wrong and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from bellwether.errors import ParamsError
from bellwether.waivers import KnownDifference, Waiver, read_known, read_waivers

WAIVER = {
    "engine": "sglang",
    "versions": ">=0.5.22,<0.6",
    "model": "Qwen/Qwen3-8B",
    "case": "qwen3-8b/render/tools-declared-user-asks",
    "reason": "defer_loading is added to every tool",
    "evidence": "queries/reports/witnesses.csv",
    "upstream": "https://example.org/issues/1",
}
KNOWN = {"verdict": "regression", "reason": "a marker in the reasoning", "issue": "https://example.org/issues/2"}
ENTRY = "qwen3-8b/parse/reasoning-with-marker-text"


def toml(head: str, values: dict) -> str:
    return f"{head}\n" + "".join(f'{key} = "{value}"\n' for key, value in values.items())


def waivers(root: Path, *listed: dict) -> list[Waiver]:
    return written(root, "waivers.toml", "".join(toml("[[waiver]]", one) for one in listed)) or read_waivers(root)


def known(root: Path, entry: str, values: dict, target: str = "smg") -> list[KnownDifference]:
    return written(root, f"known/{target}.toml", toml(f'["{entry}"]', values)) or read_known(root)


def written(root: Path, name: str, text: str) -> None:
    path = root / "queries" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def test_lists_are_read_in_their_order(tmp_path: Path):
    """Every field as it stands; files of known differences by name."""
    second = WAIVER | {"case": "qwen3-8b/render/text-user-only"}
    assert waivers(tmp_path, WAIVER, second) == [Waiver(**WAIVER), Waiver(**second)]
    known(tmp_path, ENTRY, KNOWN)
    refused = {"verdict": "rejected", "code": "400", "reason": "r", "issue": "https://example.org"}
    assert known(tmp_path, "qwen3-8b/*", refused, "llama.cpp") == [
        KnownDifference("llama.cpp", "qwen3-8b/*", "rejected", "400", "r", "https://example.org"),
        KnownDifference("smg", ENTRY, "regression", None, KNOWN["reason"], KNOWN["issue"]),
    ]


def test_no_file_is_no_entry(tmp_path: Path, root: Path):
    """A checkout without lists has none, and those of this one are sound."""
    assert (read_waivers(tmp_path), read_known(tmp_path)) == ([], [])
    read_waivers(root), read_known(root)


@pytest.mark.parametrize("key", WAIVER)
def test_every_field_of_a_waiver_is_required(key: str, tmp_path: Path):
    """A waiver that does not say why, where it is seen and where it is tracked permits nothing."""
    with pytest.raises(ParamsError, match=f"waiver 1: key '{key}' is missing"):
        waivers(tmp_path, {name: value for name, value in WAIVER.items() if name != key})


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        *((key, " ", "a text") for key in ("engine", "reason", "evidence")),
        ("versions", "0.5", "a PEP 440 range"),
        ("versions", "", "a range that ends"),
        ("model", "Qwen3-8B", "a repository of the Hub"),
        ("case", "render/tools-declared-user-asks", "<checkpoint>/<kind>/<name>"),
        ("case", "qwen3-8b/rendering/x", "<checkpoint>/<kind>/<name>"),
        ("case", "qwen3-8b/render/*", "<checkpoint>/<kind>/<name>"),
        ("upstream", "http://example.org", "an https link"),
        ("upstream", "", "an https link"),
    ],
)
def test_malformed_values_are_named(key: str, value: str, wanted: str, tmp_path: Path):
    """File, entry, key and value; the next step says what it has to be."""
    with pytest.raises(ParamsError) as caught:
        waivers(tmp_path, WAIVER, WAIVER | {"engine": "vllm", key: value})
    assert f"waivers.toml: waiver 2: {key} is {value!r}" in str(caught.value)
    assert wanted in caught.value.next_step


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (toml("[[waiver]]", WAIVER | {"expires": "soon"}), "waiver 1: unknown key 'expires'"),
        (toml("[[waivers]]", WAIVER), "unknown key 'waivers'"),
        ("waiver = 1", "waiver is no list of tables"),
        ("waiver = [1]", "waiver is no list of tables"),
        ("[[waiver", "is not TOML"),
        (toml("[[waiver]]", WAIVER).replace('"sglang"', "3"), "waiver 1: engine is 3"),
        (toml("[[waiver]]", WAIVER) * 2, "is listed twice"),
    ],
)
def test_malformed_waivers_are_no_list(text: str, said: str, tmp_path: Path):
    """Nothing unknown is passed over: a misspelt key would permit more than its author believes."""
    written(tmp_path, "waivers.toml", text)
    with pytest.raises(ParamsError, match=said):
        read_waivers(tmp_path)


@pytest.mark.parametrize(
    ("entry", "changes", "said"),
    [
        (ENTRY, {"code": "400"}, "unknown key 'code'"),
        (ENTRY, {"verdict": "rejected"}, "key 'code' is missing"),
        (ENTRY, {"verdict": "missing"}, "verdict is 'missing'"),
        (ENTRY, {"issue": "example.org"}, "issue is 'example.org'"),
        (ENTRY, {"reason": ""}, "reason is ''"),
        (ENTRY, {"since": "1.0"}, "unknown key 'since'"),
        ("*", {}, "is no case"),
        ("qwen3-8b/par*", {}, "is no case"),
        ("qwen3-8b/parse/a*b", {}, "is no case"),
    ],
)
def test_malformed_known_differences_are_named(entry: str, changes: dict, said: str, tmp_path: Path):
    """A code stands with a rejection and with nothing else; a beginning ends in `*`, after the checkpoint at least."""
    with pytest.raises(ParamsError) as caught:
        known(tmp_path, entry, KNOWN | changes)
    assert said in str(caught.value) and entry in str(caught.value)


@pytest.mark.parametrize("entry", ["a/*", "a/parse/*", "a/parse/bfcl-*", "a.b-c/detokenize/x"])
def test_beginnings_of_ids_are_entries(entry: str, tmp_path: Path):
    """Of a checkpoint, a kind, or names."""
    assert [one.entry for one in known(tmp_path, entry, KNOWN)] == [entry]
