"""The harmony renderer of gpt-oss, with the vocabulary among the checkpoint's inputs. It gives ids.

Of a request it knows messages, tools and `reasoning_effort`; chat_template_kwargs never reach it, and a prompt for
the next turn is what it writes, whatever else is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bellwether.environments import environment
from bellwether.oracles.vendor.encoder import Plan, missing, pinned, script
from bellwether.oracles.vendor.front_end import messages_of
from bellwether.params import Manifest, Params
from bellwether.sandbox import Inside

RANKS = "vendor/o200k_base.tiktoken"
"""The vocabulary. The library has a copy inside, and takes this one where the environment variable names its folder."""


def plan(manifest: Manifest, params: Params, folder: Path) -> Plan:
    """Return how the renderer is run: with the fixed clock's date as the conversation's.

    Raises:
        OracleError: the manifest does not pin the vocabulary.
    """
    if RANKS not in manifest.inputs:
        raise missing(manifest, "harmony", f"file {RANKS}")
    ranks = pinned(manifest, folder, RANKS).resolve()
    built = environment("harmony")
    date = params.clock.date().isoformat()
    return Plan(
        inside=Inside(
            manifest.slug,
            script("harmony"),
            {"date": date},
            files=[ranks],
            environment={"TIKTOKEN_ENCODINGS_BASE": str(ranks.parent)},
            python=built.python,
            packages=[built.packages],
        ),
        call=_call,
        content_format="string",
        files={RANKS: manifest.inputs[RANKS]},
        versions=built.versions,
        settings={"conversation_start_date": date},
    )


def _call(request: Mapping[str, Any], facts: Any) -> dict[str, Any]:
    return {
        "messages": messages_of(request),
        "tools": request.get("tools"),
        "reasoning_effort": request.get("reasoning_effort"),
    }
