"""What a checkpoint's prompts are asked of beside its own template: vendors' encoders, and second references."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from bellwether.errors import InputUnavailable, PinMismatch
from bellwether.layout import inputs_folder, second_references_folder
from bellwether.materials.pins import sha256_of
from bellwether.oracles.checkpoint import Checkpoint
from bellwether.oracles.prompts import VENDOR_CODE
from bellwether.params import read_second_references


@contextmanager
def with_sources(checkpoint: Checkpoint, root: Path) -> Iterator[Checkpoint]:
    """Give the checkpoint with its second references, and the vendor's encoders of [authority], open inside the body.

    Raises:
        InputUnavailable, PinMismatch: an example template is missing, or is not what is pinned.
        OracleError: an example template does not compile, or an encoder does not start.
    """
    with ExitStack() as stack:
        vendors = {}
        for source in checkpoint.manifest.authority["render"]:
            kind, _, encoder = source.partition(":")
            if kind == VENDOR_CODE:
                from bellwether.oracles.vendor import open_encoder  # starts a sandbox: only who needs one pays
                from bellwether.oracles.vendor_prompts import VendorPrompts

                folder = inputs_folder(root, checkpoint.manifest.slug)
                opened = open_encoder(encoder, checkpoint.manifest, checkpoint.params, folder)
                vendors[source] = VendorPrompts(stack.enter_context(opened))
        yield replace(checkpoint, seconds=tuple(_seconds(checkpoint, root)), vendors=vendors)


def _seconds(checkpoint: Checkpoint, root: Path) -> Iterator[Checkpoint]:
    for name, template in read_second_references(root).items():
        if template.serves(checkpoint.manifest.slug):
            path = second_references_folder(root) / f"{name}.jinja"
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                raise InputUnavailable(f"{path} is missing", next_step="Run `dvc repro second-references`.") from None
            if (actual := sha256_of(data)) != template.sha256:
                raise PinMismatch(
                    f"{path}: expected sha256 {template.sha256}, got {actual}",
                    next_step="Run `dvc repro second-references`; nothing was recorded.",
                )
            yield checkpoint.with_template(name, data.decode(), template.vllm_commit)
