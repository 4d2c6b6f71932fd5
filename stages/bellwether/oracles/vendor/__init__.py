"""Prompts written by a vendor's own code, run in a sandbox: for checkpoints whose prompt an engine builds with code.

The reference is the encoder copy the pinned engine release ships, called as its front end calls it, because that is
what runs in production, whatever the checkpoint ships. Each module here holds one encoder's way of being called; the
script of the same name in `stages/environments` runs inside.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bellwether.errors import OracleError
from bellwether.oracles.vendor import deepseek, harmony, kimi_k3, mistral_common
from bellwether.oracles.vendor.encoder import Prompt, VendorEncoder, VendorRefused
from bellwether.params import Manifest, Params

__all__ = ["ENCODERS", "Prompt", "VendorEncoder", "VendorRefused", "open_encoder"]

ENCODERS = {
    **{name: partial(deepseek.plan, name) for name in deepseek.GENERATIONS},
    "harmony": harmony.plan,
    "kimi-k3": kimi_k3.plan,
    "mistral-common": mistral_common.plan,
}
"""Name, as in a manifest's `vendor-code:<name>` → how the encoder is set up."""


def open_encoder(name: str, manifest: Manifest, params: Params, folder: Path) -> VendorEncoder:
    """Return the running encoder `name` of the checkpoint whose snapshot lies in `folder`. A context manager.

    Raises:
        OracleError: there is no such encoder, the manifest pins no file for it, or it cannot be confined or started.
        PinMismatch, InputUnavailable: a file it reads is not what the manifest pins.
        MaterialError, VersionMismatch: its environment cannot be built.
    """
    if name not in ENCODERS:
        raise OracleError(f"there is no vendor encoder {name!r}", next_step=f"Known: {', '.join(ENCODERS)}.")
    return VendorEncoder(name, ENCODERS[name](manifest, params, folder), params)
