"""The pins of a checkpoint that is new here: its oracle inputs at a revision, read from the Hub and hashed.

Every oracle input the repository has is pinned, and nothing else. The configs are pinned by what the oracle reads of
them, because other fields move without any effect (see configs.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from bellwether.errors import InputUnavailable, MaterialError, ParamsError
from bellwether.materials.configs import IDENTITY, TOKEN_IDS, derived_ids, pick, read_config
from bellwether.materials.hub import Hub, HubFailed
from bellwether.materials.pins import sha256_of
from bellwether.params import REVISION, SLUG, InputFile, Manifest, narrowed

ORACLE_INPUTS = frozenset(
    "tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json vocab.json merges.txt "
    "tokenizer.model chat_template.jinja chat_template.json generation_config.json config.json".split()
)
MORE_TEMPLATES = re.compile(r"additional_chat_templates/[^/]+\.jinja\Z")
NAME = re.compile(r"[\w.-]+/[\w.-]+\Z", re.ASCII)

LICENSES = {
    name.lower(): name
    for name in "Apache-2.0 MIT BSD-2-Clause BSD-3-Clause CC0-1.0 CC-BY-4.0 CC-BY-SA-4.0 CC-BY-NC-4.0 CC-BY-NC-SA-4.0 "
    "CC-BY-NC-ND-4.0 ISC MPL-2.0 Unlicense WTFPL Zlib".split()
}
"""The Hub's identifier → SPDX. The Hub's other identifiers are names of vendors' own terms."""
AUTHORITY = {"render": ("hf-template",), "parse": ("roundtrip",)}


def read_name(text: str) -> tuple[str, str]:
    """Return repository and revision of `OWNER/NAME@REVISION`.

    Raises:
        ParamsError: it is written otherwise, or the revision is not a whole commit id.
    """
    model, _, revision = text.partition("@")
    if not NAME.match(model):
        raise ParamsError(f"{text!r} names no checkpoint", next_step="Write OWNER/NAME@REVISION.")
    if not REVISION.match(revision):
        raise ParamsError(
            f"{text!r}: " + (f"revision {revision!r} is not 40 hex digits" if revision else "no revision is given"),
            next_step=f"A branch, tag or short id can move. `hf models info {model}` shows the commit as `sha`"
            + (f" (of {revision!r} with --revision {revision})." if revision else "."),
        )
    return model, revision


def slug_of(model: str) -> str:
    """Return the slug of a repository: its name without the owner, lower case, other characters as '-'.

    Raises:
        ParamsError: what comes out is no slug.
    """
    slug = re.sub(r"[^a-z0-9.-]+", "-", model.rpartition("/")[2].lower())
    if not SLUG.match(slug):
        raise ParamsError(
            f"{model} has no slug: {slug!r}", next_step="Write its manifest by hand, under a slug of your own."
        )
    return slug


def pin(hub: Hub, model: str, revision: str, tier: int) -> Manifest:
    """Return the manifest of a checkpoint as the Hub has it.

    Raises:
        InputUnavailable: the Hub does not give the listing or a file. Names both, and why.
        MaterialError: it holds no oracle input, a config is no JSON object, or its ids cannot be derived.
    """
    try:
        listing = hub.listing(model, revision)
        data = {name: hub.download(model, revision, name) for name in sorted(listing.files) if _is_input(name)}
        if _is_vendor_code(data):
            code = sorted(name for name in listing.files if name.endswith(".py") or name == "tiktoken.model")
            data |= {name: hub.download(model, revision, name) for name in code}
    except HubFailed as error:
        raise InputUnavailable(
            f"{model}@{revision} cannot be read: {error}",
            next_step="Nothing was written. Run it again where the Hub gives it (HF_ENDPOINT, HF_TOKEN).",
        ) from None
    if not data:
        raise MaterialError(f"{model}@{revision} holds no oracle input", next_step="Check the name and the revision.")
    inputs = {name: sha256_of(_read_by_oracle(name, data)) for name in sorted(data)}
    return Manifest(
        slug=slug_of(model),
        model=model,
        revision=revision,
        tier=tier,
        license=spdx(listing.license),
        inputs=inputs,
        files={name: InputFile(name, sha256, "identical") for name, sha256 in inputs.items()},
        authority=AUTHORITY,
        unreached={},
    )


def spdx(license: str | None) -> str:
    """Return a card's licence as an SPDX expression; a vendor's own terms as a reference, none as NOASSERTION."""
    if license is None:
        return "NOASSERTION"
    return LICENSES.get(license.lower()) or "LicenseRef-" + re.sub(r"[^A-Za-z0-9.-]+", "-", license).strip("-")


def _is_input(name: str) -> bool:
    return name in ORACLE_INPUTS or MORE_TEMPLATES.match(name) is not None


def _is_vendor_code(data: Mapping[str, bytes]) -> bool:
    """Whether the tokenizer is a class of the repository itself."""
    try:
        settings = json.loads(data.get("tokenizer_config.json", b"{}"))
        return "AutoTokenizer" in settings.get("auto_map", {})
    except (ValueError, AttributeError, TypeError, RecursionError):
        return False


def _read_by_oracle(name: str, data: Mapping[str, bytes]) -> bytes:
    """Return the bytes that are hashed: the file's, or a config's narrowed value."""
    if name == "generation_config.json":
        return narrowed(pick(read_config(name, data[name]), TOKEN_IDS))
    if name == "config.json":
        config = read_config(name, data[name])
        derived = {} if "generation_config.json" in data else derived_ids(config)
        return narrowed(pick(config, IDENTITY) | derived)
    return data[name]
