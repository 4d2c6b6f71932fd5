"""Command `gaps`: the stored registries, read again from the packages or from a running gateway, and compared.

What is asked of them stands in `reports.gaps`. Neither needs the other's material: the list is in Git.
"""

from __future__ import annotations

from pathlib import Path

from bellwether.errors import Finding
from bellwether.registries import gateway, listed, sglang, smg, vllm
from bellwether.registries.listed import Part, Registries, ordered, part
from bellwether.registries.pinned import origin, pinned
from bellwether.whole import write_whole

TOLD = 20
"""How many lines a finding names."""


def refresh(root: Path, *, ask_gateway: bool) -> Registries:
    """Write the stored list from the pinned packages, and first, when asked, what a running gateway says.

    Raises:
        InputUnavailable, PinMismatch, MaterialError: a package cannot be had, or is not what is pinned.
        RegistryError: a registry is missing, or written in another way.
        WitnessError: the gateway cannot be asked.
        Finding: the gateway and its source name different parsers. Nothing is written.
    """
    registries = current(root)
    said = gateway.ask(_release(registries)) if ask_gateway else None
    if said is not None:
        _require_none(gateway.differences(said, registries), "the running gateway differs from its source")
        write_whole(gateway.path(root, said.version), gateway.render(said))
    write_whole(listed.path(root), listed.render(registries))
    return registries


def check(root: Path, *, ask_gateway: bool) -> Registries:
    """Read the registries again and compare them with the stored list; writes nothing.

    The stored answers of the gateway are compared with its source, and when asked with a running one.

    Raises:
        Finding: they differ. Names where.
        TableError: nothing is stored, or it cannot be read. Otherwise as `refresh`.
    """
    stored, registries = listed.read(root), current(root)
    said = gateway.read(root, _release(registries))
    wrong = differences(stored, registries) + gateway.differences(said, registries)
    if ask_gateway and gateway.ask(said.version) != said:
        wrong.append(f"{gateway.path(root, said.version).name}: a running gateway says something else")
    _require_none(wrong, f"{listed.path(root)} differs from what is registered")
    if listed.render(registries) != listed.path(root).read_text("utf-8"):
        raise Finding(
            f"{listed.path(root)} is written in another way or order", next_step="Run `bellwether gaps --refresh`."
        )
    return registries


def current(root: Path) -> Registries:
    """Return the registries as the pinned packages have them. Raises as `refresh`."""
    found = pinned(root, ("vllm", "sglang", "smg"))
    files = {system: one.files for system, one in found.items()}
    commits = {"vllm": vllm.commit(files["vllm"]), "sglang": sglang.commit(files["sglang"]), "smg": None}
    systems = {system: origin(one.package, commits[system]) for system, one in found.items()}
    systems["smg-symphony"] = systems["smg"]
    entries = {
        "vllm": vllm.parts(files["vllm"]),
        "sglang": sglang.parts(files["sglang"]),
        "smg": smg.parts(files["smg"]),
        "smg-symphony": smg.symphony(files["smg"]),
    }
    names = set(smg.tables(files["smg"]).values())
    read = {kind: {entry.name for entry in entries["smg-symphony"] if entry.kind == kind} for kind in smg.FACTORIES}
    return Registries(
        systems=systems,
        patterns={"smg": {kind: tuple(pairs) for kind, pairs in smg.patterns(files["smg"]).items()}},
        left_out={"smg-symphony": {kind: tuple(sorted(names - taken)) for kind, taken in read.items()}},
        parts=ordered(part(system, entry) for system, registered in entries.items() for entry in registered),
    )


def differences(stored: Registries, registries: Registries) -> list[str]:
    """Return what differs between two lists, one sentence each."""
    found = [
        f"{system}: {stored.systems.get(system)} is stored, {origin} is pinned"
        for system, origin in registries.systems.items()
        if stored.systems.get(system) != origin
    ]
    old, new = ({_key(one): one.implementation for one in side.parts} for side in (stored, registries))
    found += [f"{key}: is no longer registered" for key in sorted(old.keys() - new.keys())]
    found += [f"{key}: is not in the list" for key in sorted(new.keys() - old.keys())]
    found += [
        f"{key}: is {old[key]} in the list, and {new[key]} in the package"
        for key in sorted(old.keys() & new.keys())
        if old[key] != new[key]
    ]
    if stored.patterns != registries.patterns:
        found.append("the patterns of model names are others")
    if stored.left_out != registries.left_out:
        found.append("other names are left out")
    return found


def _key(one: Part) -> str:
    return f"{one.system} {one.kind} {one.name}"


def _release(registries: Registries) -> str:
    return str(registries.systems["smg"]["version"])


def _require_none(wrong: list[str], what: str) -> None:
    if wrong:
        rest = f"\n  and {len(wrong) - TOLD:,} more" if len(wrong) > TOLD else ""
        raise Finding(
            f"{what} in {len(wrong):,} places\n  " + "\n  ".join(wrong[:TOLD]) + rest,
            next_step="Run `bellwether gaps --refresh` and look at the difference.",
        )
