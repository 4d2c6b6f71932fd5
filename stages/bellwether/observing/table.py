"""The table of observations: one row per replay, nothing folded and nothing judged.

Columns that mean what they mean for a witness are the same here, so that one comparison serves both.
"""

from __future__ import annotations

import pyarrow as pa

from bellwether.tables import DIGEST, FLAG, NUMBER, TEXT, WITNESS


def _field(name: str, kind: pa.DataType, description: str) -> pa.Field:
    return pa.field(name, kind, metadata={"description": description})


def _as_witness(*names: str) -> list[pa.Field]:
    return [WITNESS.field(name) for name in names]


OBSERVATION = pa.schema(
    [
        *_as_witness("checkpoint", "case_id", "kind"),
        _field("target", TEXT, "what was observed: <gateway>-<version>, and its parser where it has two"),
        _field("target_version", TEXT, "its release, as it says itself"),
        _field("mode", TEXT, "full: one answer; stream: server-sent events"),
        _field("plan", TEXT, "stream: the chunk plan the engine streamed by"),
        _field(
            "outcome", TEXT, "result, refused, missing (200, and no request reached the engine), measurement_failed"
        ),
        *_as_witness("reason_code", "reason"),
        _field("http_status", NUMBER, "of the answer; null without one"),
        _field("parser_used", TEXT, "who read the output, where the gateway says so"),
        *_as_witness("prompt_ids", "prompt_sha256"),
        _field("prompt_text", TEXT, "render: the text of prompt_ids, where they differ from the reference's"),
        *_as_witness("prompt_text_sha256"),
        _field("baseline_text_sha256", DIGEST, "what the decoder that gave prompt_text makes of the reference's ids"),
        _field(
            "bare_sha256", DIGEST, "prompt_ids without what a tokenizer adds, where they differ from the reference's"
        ),
        _field("baseline_bare_sha256", DIGEST, "the reference's ids without that"),
        _field("output_text", TEXT, "detokenize; parse, full: the text the gateway's decoder makes of the ids"),
        *_as_witness("output_text_sha256", "output_ids", "output_sha256", "content", "reasoning_content", "tool_calls"),
        *_as_witness("message_sha256", "message_value_sha256", "message_bare_sha256"),
        _field("finish_reason", TEXT, "parse: as the gateway says it"),
        _field("usage_prompt_tokens", NUMBER, "parse: as the gateway counts"),
        _field("usage_completion_tokens", NUMBER, "parse: as the gateway counts"),
        _field("prompt_tokens", NUMBER, "parse: ids the engine was sent"),
        _field("completion_tokens", NUMBER, "parse: ids the engine gave"),
        _field("framing", TEXT, "stream: the first rule of server-sent events and chat chunks that is broken"),
        _field(
            "in_pieces",
            FLAG,
            "stream: whether text came in more than one event, and so did content and reasoning_content, each where it"
            " has 16 characters or more",
        ),
    ],
    metadata=WITNESS.metadata,
)
