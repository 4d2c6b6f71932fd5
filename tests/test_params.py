"""params.yaml, manifests and packages.toml: what a good one says, and every way a bad one is refused."""

from __future__ import annotations

import csv
import hashlib
from collections import defaultdict
from datetime import datetime, timedelta, timezone
from importlib.metadata import version
from pathlib import Path

import pytest

from bellwether.errors import ParamsError, VersionMismatch
from bellwether.params import (
    InputFile,
    Manifest,
    Package,
    Scope,
    Source,
    narrowed,
    read_manifest,
    read_packages,
    read_params,
    require_versions,
)
from support import ROOT

PINS = Path(__file__).parent / "expected" / "checkpoints_pins.tsv"
"""Published pins and independently rebuilt files: slug, file, sha256, proof. `pin only`: no package holds the file."""
OWN_CONTAINER = {(slug, "tokenizer.json") for slug in ("glm-4.6", "kimi-k2-instruct", "kimi-k3")}
"""Built with ignore_merges on, where the independent build has it off: the same vocabulary, another sha256."""
CORRECTED = {("olmo-3-7b-instruct", "tokenizer.json"), ("olmo-3-7b-instruct", "tokenizer_config.json")}
"""Differ from the independent build on purpose: four added tokens and the end-of-text token have other names in it."""
MANIFESTS = sorted(path.parent.name for path in (ROOT / "fixtures").glob("*/manifest.toml"))

PARAMS = """\
checkpoints: [one, two.5-b]
corpora: [handmade]
oracle:
  versions:
    jinja2: 3.1.6
    other: 5.24
  clock: "2026-01-15T12:00:00"
  other_clock: 2027-10-02T23:30:00
  template_seconds: 20
"""

REVISION = "0123456789abcdef0123456789abcdef01234567"
SHA_A, SHA_B, SHA_C = "a" * 64, "b" * 64, "c" * 64
HEAD = f"""\
model = "owner/Name-1B"
revision = "{REVISION}"
tier = 3
license = "MIT"
[authority]
render = ["hf-template"]
parse = ["roundtrip"]
"""
INPUTS = f"""
[inputs]
"config.json" = "{SHA_A}"
"sub/tokenizer.json" = "{SHA_B}"
"""
UNREACHED = f"""
[unreached]
"merges.txt" = "{SHA_C}"
"""
FILES = """
[files."config.json"]
proof = "identical"
transform = "narrowed"
[files."config.json".options]
value = '{"model_type": "x", "tokenizer_class": null}'

[files."sub/tokenizer.json"]
proof = "derived"
transform = "copy"
sources = ["@scope/pkg:package/models/tokenizer.json", "two:a:b"]
note = "Ours."
"""
GOOD = HEAD + INPUTS + UNREACHED + FILES

PACKAGES = f"""\
["@scope/pkg"]
registry = "npm"
version = "1.2.3"
sha256 = "{SHA_A}"
bytes = 12
license = "MIT"

[wheel]
registry = "pypi"
version = "4"
sha256 = "{SHA_B}"
bytes = 34
license = "Apache-2.0"
platform = "manylinux2014_x86_64"

[wheel-of-two]
registry = "pypi"
project = "two"
version = "5"
sha256 = "{SHA_C}"
bytes = 56
license = "MIT"
"""


@pytest.fixture
def manifest_of(tmp_path: Path):
    """`manifest_of(text)` → what is read from a manifest with that text."""

    def read(text: str | bytes) -> Manifest:
        path = tmp_path / "fixtures" / "tiny" / "manifest.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_manifest(tmp_path, "tiny")

    return read


def refused(call, *arguments, says: str, where: str | None = None) -> None:
    """Check that `call` raises a ParamsError that names the file, says `says`, and has a next step."""
    with pytest.raises(ParamsError) as caught:
        call(*arguments)
    assert says in str(caught.value)
    assert where is None or where in str(caught.value)
    assert caught.value.next_step


# params.yaml


def test_every_key_of_a_params_file_becomes_a_field(tmp_path: Path):
    """Numbers among versions are text; a clock may be quoted or a YAML time stamp."""
    (tmp_path / "params.yaml").write_text(PARAMS)
    params = read_params(tmp_path)
    assert params.checkpoints == ("one", "two.5-b")
    assert params.corpora == ("handmade",)
    assert params.versions == {"jinja2": "3.1.6", "other": "5.24"}
    assert params.clock == datetime(2026, 1, 15, 12, 0, 0)
    assert params.other_clock == datetime(2027, 10, 2, 23, 30, 0)
    assert params.template_seconds == 20.0
    assert (params.engines, params.witness) == ((), Scope(plans="drawn", share=1.0))


def test_engines_and_what_they_are_asked_become_fields(tmp_path: Path):
    """Releases by name; a share may be written as a whole number."""
    (tmp_path / "params.yaml").write_text(
        PARAMS + "engines: [vllm-rust-0.33.0, llama.cpp-b1]\nwitness: {plans: all, share: 1}\n"
    )
    params = read_params(tmp_path)
    assert params.engines == ("vllm-rust-0.33.0", "llama.cpp-b1")
    assert params.witness == Scope(plans="all", share=1)


def test_a_clock_keeps_its_offset(tmp_path: Path):
    """`+02:00` is part of the moment."""
    (tmp_path / "params.yaml").write_text(PARAMS.replace("12:00:00", "12:00:00+02:00"))
    assert read_params(tmp_path).clock == datetime(2026, 1, 15, 12, tzinfo=timezone(timedelta(hours=2)))


def test_the_project_has_its_first_eight_checkpoints_and_two_dates():
    """The scope of the first release; only two different dates can tell whether a prompt reads the clock."""
    params = read_params(ROOT)
    assert set(params.checkpoints) >= {
        *("qwen3-8b", "hermes-4-14b", "deepseek-v3-0324", "gpt-oss-20b"),
        *("kimi-k2-instruct", "glm-4.6", "qwen3.5-9b", "smollm2-135m-instruct"),
    }
    assert set(params.corpora) >= {"handmade", "bfcl"}
    assert params.clock.date() != params.other_clock.date()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("corpora:", "corpus:", "unknown key 'corpus'"),
        ("corpora: [handmade]\n", "", "'corpora' is missing"),
        ("  template_seconds: 20\n", "", "oracle: key 'template_seconds' is missing"),
        ("  template_seconds: 20\n", "  template_seconds: 20\n  clocks: 1\n", "oracle: unknown key 'clocks'"),
        ("template_seconds: 20", "template_seconds: soon", "'template_seconds' is 'soon'"),
        ("template_seconds: 20", "template_seconds: true", "'template_seconds' is True"),
        ("template_seconds: 20", "template_seconds: 0", "template_seconds is 0"),
        ("template_seconds: 20", "template_seconds: .nan", "template_seconds is nan"),
        ("template_seconds: 20", "template_seconds: .inf", "template_seconds is inf"),
        ("[handmade]", "handmade", "'corpora' is 'handmade'"),
        ("[one, two.5-b]", "[one, One]", "checkpoints is no list of slugs"),
        ("[one, two.5-b]", "[one, ../one]", "checkpoints is no list of slugs"),
        ("[one, two.5-b]", '[one, "two\\n"]', "checkpoints is no list of slugs"),
        ("[one, two.5-b]", "[one, 2]", "checkpoints is no list of slugs"),
        ("[one, two.5-b]", "[one, one]", "checkpoints lists a name twice"),
        ("    jinja2: 3.1.6\n    other: 5.24\n", "", "'versions' is None"),
        ('"2026-01-15T12:00:00"', "noon", "'noon' is no date and time"),
        ("2027-10-02T23:30:00", "2027-13-02T23:30:00", "is not YAML"),
        ("[handmade]", "[handmade", "is not YAML"),
        ("[handmade]", "[handmade]\nengines: [a/b]", "engines is no list of slugs"),
        ("[handmade]", "[handmade]\nwitness: all", "'witness' is 'all'"),
        ("[handmade]", "[handmade]\nwitness: {plan: all}", "witness: unknown key 'plan'"),
        ("[handmade]", "[handmade]\nwitness: {plans: some}", "witness: plans is 'some'"),
        ("[handmade]", "[handmade]\nwitness: {share: 1.1}", "witness: share is 1.1"),
        ("[handmade]", "[handmade]\nwitness: {share: -0.1}", "witness: share is -0.1"),
        ("[handmade]", "[handmade]\nwitness: {share: .nan}", "witness: share is nan"),
        ("[handmade]", "[handmade]\nwitness: {share: true}", "witness: 'share' is True"),
    ],
)
def test_a_malformed_params_file_is_refused(tmp_path: Path, old: str, new: str, says: str):
    """Unknown, missing and misshapen keys each name the file and the key."""
    assert old in PARAMS
    (tmp_path / "params.yaml").write_text(PARAMS.replace(old, new))
    refused(read_params, tmp_path, says=says, where=str(tmp_path / "params.yaml"))


def test_a_params_file_that_is_no_text_or_no_table_is_refused(tmp_path: Path):
    """Bytes that are not UTF-8, a list, and an empty file."""
    for data, says in ((b"\xff\xfe\x00", "is not YAML"), (b"- 1\n", "is list"), (b"", "is NoneType")):
        (tmp_path / "params.yaml").write_bytes(data)
        refused(read_params, tmp_path, says=says, where="params.yaml")


def test_a_missing_params_file_is_refused(tmp_path: Path):
    """Outside a checkout there is none."""
    refused(read_params, tmp_path, says=f"{tmp_path / 'params.yaml'} does not exist")


# Manifests


def test_every_key_of_a_manifest_becomes_a_field(manifest_of):
    """A source is cut at its first colon; absent options, sources and note are empty."""
    assert manifest_of(GOOD) == Manifest(
        slug="tiny",
        model="owner/Name-1B",
        revision=REVISION,
        tier=3,
        license="MIT",
        inputs={"config.json": SHA_A, "sub/tokenizer.json": SHA_B},
        files={
            "config.json": InputFile(
                path="config.json",
                sha256=SHA_A,
                proof="identical",
                transform="narrowed",
                options={"value": '{"model_type": "x", "tokenizer_class": null}'},
            ),
            "sub/tokenizer.json": InputFile(
                path="sub/tokenizer.json",
                sha256=SHA_B,
                proof="derived",
                transform="copy",
                sources=(Source("@scope/pkg", "package/models/tokenizer.json"), Source("two", "a:b")),
                note="Ours.",
            ),
        },
        authority={"render": ("hf-template",), "parse": ("roundtrip",)},
        unreached={"merges.txt": SHA_C},
    )


def test_unreached_may_be_absent(manifest_of):
    """A checkpoint all of whose files were obtained has no such table."""
    assert manifest_of(HEAD + INPUTS + FILES).unreached == {}


def test_a_file_without_a_plan_is_one_only_the_hub_has(manifest_of):
    """Its sha256 is the published one, so what the Hub or a mirror gives is the vendor's file."""
    text = GOOD.replace(f'"config.json" = "{SHA_A}"', f'"config.json" = "{SHA_A}"\n"v.json" = "{SHA_C}"')
    assert manifest_of(text).files["v.json"] == InputFile("v.json", SHA_C, "identical", transform=None)


def test_engines_are_told_what_they_are_started_with(manifest_of):
    """Without a table an engine is told nothing."""
    assert manifest_of(GOOD).engines == {}
    told = '[engines.vllm]\ntool_parser = "hermes"\n[engines.vllm-rust]\n'
    assert manifest_of(GOOD + told).engines == {"vllm": {"tool_parser": "hermes"}, "vllm-rust": {}}


def test_a_member_names_the_group_that_is_recorded_for_it(manifest_of):
    """`group` is the primary's slug."""
    assert manifest_of(GOOD).group is None
    assert manifest_of(GOOD.replace("tier = 3", 'tier = 3\ngroup = "big"')).group == "big"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('license = "MIT"', 'licence = "MIT"', "unknown key 'licence'"),
        ('license = "MIT"\n', "", "key 'license' is missing"),
        ('model = "owner/Name-1B"', "model = 5", "'model' is 5"),
        ("tier = 3", 'tier = "three"', "'tier' is 'three'"),
        ("tier = 3", "tier = true", "'tier' is True"),
        ("tier = 3", "tier = 3.5", "'tier' is 3.5"),
        (REVISION, REVISION[:39], f"revision is '{REVISION[:39]}', not 40 hex digits"),
        (REVISION, "main", "revision is 'main', not 40 hex digits"),
        (REVISION, REVISION.upper(), "not 40 hex digits"),
        (f'"{REVISION}"', "1" * 40, "'revision' is 1111111111"),
        (SHA_A, SHA_A[:63], "[inputs]: config.json: 'aaa"),
        (SHA_A, SHA_A.upper(), "is no sha256"),
        (SHA_A, SHA_A + r"\n", "is no sha256"),
        (f'"{SHA_A}"', "7", "7 is no sha256"),
        (SHA_C, "x" * 64, "[unreached]: merges.txt: 'xxx"),
        (UNREACHED, "\n[[unreached]]\n", "'unreached' is [{}]"),
        ('proof = "identical"', 'proof = "certain"', "proof is 'certain'"),
        ('proof = "identical"', 'prof = "identical"', "unknown key 'prof'"),
        ('proof = "identical"\n', "", "key 'proof' is missing"),
        ('transform = "copy"\n', "", "key 'transform' is missing"),
        ('transform = "copy"', "transform = [1]", "'transform' is [1]"),
        ('"two:a:b"', '"two"', "source 'two' has no ':'"),
        ('"two:a:b"', "2", "source 2 has no ':'"),
        ('note = "Ours."', "note = 1", "'note' is 1"),
        ('note = "Ours."', "options = 1", "'options' is 1"),
        ('[files."sub/tokenizer.json"]', '[files."other.json"]', "[files]: unknown key 'other.json'"),
        (f'"sub/tokenizer.json" = "{SHA_B}"\n', "", "[files]: unknown key 'sub/tokenizer.json'"),
        ('render = ["hf-template"]', 'render = ["template"]', "[authority] names 'template'"),
        ('render = ["hf-template"]', 'render = ["vendor-code:../x"]', "[authority] names 'vendor-code:../x'"),
        ('parse = ["roundtrip"]', "parse = [1]", "[authority] names 1"),
        ('parse = ["roundtrip"]\n', "", "[authority]: key 'parse' is missing"),
        ("tier = 3", "tier = 3\ngroup = 1", "'group' is 1"),
        (UNREACHED, '[engines.vlm]\na = "b"\n', "[engines]: unknown key 'vlm'"),
        (UNREACHED, "[engines.vllm]\ntool_parser = 1\n", "[engines.vllm]: 'tool_parser' is 1"),
        (UNREACHED, '[engines]\nvllm = "hermes"\n', "[engines]: 'vllm' is 'hermes'"),
        ("tier = 3", "tier = ", "is not TOML"),
        ("tier = 3", "tier = 3\ntier = 3", "is not TOML"),
    ],
)
def test_a_malformed_manifest_is_refused(manifest_of, tmp_path: Path, old: str, new: str, says: str):
    """Unknown, missing and misshapen keys, short or moving revisions, bad pins, and tables that disagree."""
    assert old in GOOD
    path = tmp_path / "fixtures" / "tiny" / "manifest.toml"
    refused(manifest_of, GOOD.replace(old, new, 1), says=says, where=str(path))


@pytest.mark.parametrize("table", ["inputs", "unreached"])
@pytest.mark.parametrize(
    "name", ["../x", "a/../../x", "/abs", r"a\\b", r"..\\x", "a/../b", "./a", "a//b", "a/", ".", "..", ""]
)
def test_a_path_that_leaves_the_snapshot_folder_is_refused(manifest_of, table: str, name: str):
    """Only plain relative paths name a file: no '..', no root, no backslash, no spelling that is not normal."""
    text = GOOD.replace(f"[{table}]\n", f'[{table}]\n"{name}" = "{SHA_C}"\n')
    refused(manifest_of, text, says="leaves the snapshot folder", where=f"[{table}]")


def test_a_manifest_that_is_no_text_is_refused(manifest_of):
    """TOML is UTF-8."""
    refused(manifest_of, b"\xff\xfe", says="is not TOML", where="manifest.toml")


def test_a_missing_manifest_is_refused(tmp_path: Path):
    """A slug in params.yaml without a manifest."""
    refused(read_manifest, tmp_path, "tiny", says=f"{tmp_path / 'fixtures' / 'tiny' / 'manifest.toml'} does not")


@pytest.mark.parametrize("slug", ["", "..", "../x", "A", "a b", "a/b", "-a", "a-", "a--b", "a\n", "a_b"])
def test_what_is_no_slug_is_refused_before_anything_is_read(tmp_path: Path, slug: str):
    """A slug is a folder name, so it cannot lead out of fixtures/."""
    refused(read_manifest, tmp_path, slug, says=f"{slug!r} is no checkpoint slug")


# packages.toml


def test_every_key_of_a_packages_file_becomes_a_field(tmp_path: Path):
    """Two registries; a platform only where the archive is a platform wheel."""
    (tmp_path / "fixtures").mkdir()
    (tmp_path / "fixtures" / "packages.toml").write_text(PACKAGES)
    assert read_packages(tmp_path) == {
        "@scope/pkg": Package("@scope/pkg", "npm", "1.2.3", SHA_A, 12, "MIT"),
        "wheel": Package("wheel", "pypi", "4", SHA_B, 34, "Apache-2.0", "manylinux2014_x86_64"),
        "wheel-of-two": Package("wheel-of-two", "pypi", "5", SHA_C, 56, "MIT", project="two"),
    }


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('registry = "npm"', 'registry = "cargo"', "[@scope/pkg]: registry is 'cargo'"),
        ('license = "MIT"', 'licence = "MIT"', "[@scope/pkg]: unknown key 'licence'"),
        ('version = "4"\n', "", "[wheel]: key 'version' is missing"),
        ('version = "4"', "version = 4", "[wheel]: 'version' is 4"),
        ("bytes = 12", 'bytes = "12"', "[@scope/pkg]: 'bytes' is '12'"),
        (SHA_B, SHA_B[1:], "is no sha256"),
        ('version = "4"', "version = ", "is not TOML"),
        ("[wheel]", "[wheel", "is not TOML"),
    ],
)
def test_a_malformed_packages_file_is_refused(tmp_path: Path, old: str, new: str, says: str):
    """Unknown, missing and misshapen keys name the file and the package."""
    assert old in PACKAGES
    path = tmp_path / "fixtures" / "packages.toml"
    path.parent.mkdir()
    path.write_text(PACKAGES.replace(old, new, 1))
    refused(read_packages, tmp_path, says=says, where=str(path))


def test_a_loose_key_is_refused(tmp_path: Path):
    """Every top-level entry is a package."""
    (tmp_path / "fixtures").mkdir()
    (tmp_path / "fixtures" / "packages.toml").write_text("loose = 1\n")
    refused(read_packages, tmp_path, says="[loose] is int, not a table", where="packages.toml")


def test_every_source_of_the_project_is_a_listed_package():
    """A manifest names packages by the names of packages.toml, and every listed package is used."""
    packages = read_packages(ROOT)
    used = {
        source.package
        for slug in MANIFESTS
        for file in read_manifest(ROOT, slug).files.values()
        for source in file.sources
    }
    # sglang and smg are only read for the names they register, of vLLM's wheel one executable runs
    assert used | {"sglang", "smg", "vllm-wheel"} == set(packages)


# The pins of this project


@pytest.fixture(scope="module")
def published() -> dict[str, dict[str, tuple[str, str]]]:
    """slug → file → (sha256, proof)."""
    by_slug: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    with PINS.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            by_slug[row["slug"]][row["file"]] = (row["sha256"], row["proof"])
    return by_slug


def test_every_checkpoint_in_scope_has_a_manifest():
    """And there are more manifests: checkpoints of which only pins are known."""
    assert set(read_params(ROOT).checkpoints) <= set(MANIFESTS)


def test_there_is_a_manifest_for_every_checkpoint_with_pins(published):
    """41 checkpoints have published pins or an independent build."""
    assert set(MANIFESTS) == set(published)
    assert len(MANIFESTS) == 41


@pytest.mark.parametrize("slug", MANIFESTS)
def test_what_is_called_identical_equals_the_published_pin(published, slug: str):
    """Only a file whose sha256 is a published pin of that file may be called identical, and all such are."""
    files = read_manifest(ROOT, slug).files
    ours = {name: file.sha256 for name, file in files.items() if file.proof == "identical" and file.transform}
    assert ours == {name: sha256 for name, (sha256, proof) in published[slug].items() if proof == "identical"}


@pytest.mark.parametrize("slug", MANIFESTS)
def test_what_only_the_hub_has_is_pinned_to_the_published_sha256(published, slug: str):
    """A file without a plan is identical by definition, so its pin has to be a published one."""
    hub_only = {name: file.sha256 for name, file in read_manifest(ROOT, slug).files.items() if not file.transform}
    assert hub_only == {name: published[slug][name][0] for name in hub_only}


@pytest.mark.parametrize("slug", MANIFESTS)
def test_built_files_equal_an_independent_build(published, slug: str):
    """Derived and unproved files carry the label and the sha256 a second implementation reached."""
    built = {
        (name, file.sha256, file.proof)
        for name, file in read_manifest(ROOT, slug).files.items()
        if published[slug].get(name, ("", ""))[1] in ("derived", "unproved")
        and (slug, name) not in OWN_CONTAINER | CORRECTED
    }
    assert built == {
        (name, sha256, proof)
        for name, (sha256, proof) in published[slug].items()
        if proof in ("derived", "unproved") and (slug, name) not in OWN_CONTAINER | CORRECTED
    }


@pytest.mark.parametrize("slug", MANIFESTS)
def test_what_stands_in_for_a_file_that_was_not_obtained_is_not_called_identical(published, slug: str):
    """The published pin of that file is another one."""
    for name, file in read_manifest(ROOT, slug).files.items():
        if published[slug].get(name, ("", ""))[1] == "pin only" and file.transform:
            assert file.proof in ("derived", "unproved")
            assert file.sha256 != published[slug][name][0]


def test_olmo_3_has_the_names_its_prompts_use():
    """`<functions>` and its three sisters, and `<|endoftext|>` as the tokenizer's own end."""
    files = read_manifest(ROOT, "olmo-3-7b-instruct").files
    added = {token_id: content for token_id, content, _ in files["tokenizer.json"].options["added_tokens"]}
    assert [added[token_id] for token_id in range(100265, 100270)] == [
        *("<|im_end|>", "<functions>", "</functions>", "<function_calls>", "</function_calls>")
    ]
    assert '"eos_token": "<|endoftext|>"' in files["tokenizer_config.json"].options["value"]


@pytest.mark.parametrize(("slug", "name"), sorted(OWN_CONTAINER))
def test_a_container_of_our_own_is_called_derived(published, slug: str, name: str):
    """Where ignore_merges differs from the independent build, the sha256 does too."""
    file = read_manifest(ROOT, slug).files[name]
    assert (file.proof, file.options["ignore_merges"]) == ("derived", True)
    assert published[slug][name][1] == "derived"
    assert file.sha256 != published[slug][name][0]


@pytest.mark.parametrize("slug", MANIFESTS)
def test_files_no_package_holds_are_listed_as_unreached(published, slug: str):
    """What is known to exist and was not obtained is said so with the sha256 it has, or is left to the Hub."""
    manifest = read_manifest(ROOT, slug)
    pin_only = {name: sha256 for name, (sha256, proof) in published[slug].items() if proof == "pin only"}
    only_on_the_hub = {name: file.sha256 for name, file in manifest.files.items() if not file.transform}
    assert pin_only.items() <= manifest.unreached.items() | only_on_the_hub.items()
    assert all(manifest.inputs.get(name) != sha256 for name, sha256 in manifest.unreached.items())


@pytest.mark.parametrize("slug", MANIFESTS)
def test_nothing_unpublished_is_called_identical_or_derived(published, slug: str):
    """A file outside the table of pins is unproved."""
    for name, file in read_manifest(ROOT, slug).files.items():
        assert name in published[slug] or file.proof == "unproved"


# Narrowed values


@pytest.mark.parametrize(
    ("value", "head"),
    [
        (
            {"model_type": "qwen3", "tokenizer_class": None},
            "9b7728ead4a0106331ff2688b0eca40619af8f48e5ccb89270c6623f6420aab0",
        ),
        ({"model_type": "deepseek_v3", "tokenizer_class": None}, "fb0aec65"),
        ({"bos_token_id": 151643, "eos_token_id": [151645, 151643], "pad_token_id": 151643}, "7c21ad7e"),
        ({"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None}, "91fb14e3"),
        (
            {
                "bos_token_id": None,
                "eos_token_id": 248044,
                "model_type": "qwen3_5",
                "pad_token_id": None,
                "tokenizer_class": None,
            },
            "35e1cee5",
        ),
    ],
)
def test_published_check_values_are_reached(value: dict, head: str):
    """sha256 over sorted keys, Python's default separators and ASCII escapes."""
    assert hashlib.sha256(narrowed(value)).hexdigest().startswith(head)
    assert narrowed(dict(reversed(value.items()))) == narrowed(value)


def test_the_bytes_are_canonical_json():
    """One line, keys sorted, ', ' and ': ', non-ASCII escaped, no final newline."""
    assert narrowed({"b": "é", "a": [1, None]}) == b'{"a": [1, null], "b": "\\u00e9"}'


# Versions


def test_installed_versions_pass():
    """The pinned libraries of this environment."""
    require_versions({"jinja2": version("jinja2"), "pyarrow": version("pyarrow")})
    require_versions(read_params(ROOT).versions)


def test_every_difference_is_named():
    """Library, expected and actual version; an absent library is a difference."""
    with pytest.raises(VersionMismatch) as caught:
        require_versions({"jinja2": "0.0.1", "pytest": version("pytest"), "no-such-library": "1"})
    assert f"jinja2: expected 0.0.1, found {version('jinja2')}" in str(caught.value)
    assert "no-such-library: expected 1, found not installed" in str(caught.value)
    assert "pytest" not in str(caught.value)
    assert caught.value.next_step
