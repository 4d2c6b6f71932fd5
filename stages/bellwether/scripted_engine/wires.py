"""The three gRPC wires between a gateway and its workers, as `smg-grpc-proto` defines them.

| call | answer |
|---|---|
| HealthCheck | healthy |
| GetModelInfo | what `Checkpoint.facts` says |
| GetServerInfo | the kind of server, where the wire has a word for it |
| GetLoads | one rank, idle |
| Generate | a script: a message per chunk when streamed, then the whole |
| Abort | noted on the capture; the answer is under way or over, and stays as scripted |
| all others, among them GetTokenizer and SubscribeKvEvents | UNIMPLEMENTED |

A gateway finds out which wire a worker speaks by calling HealthCheck of one after the other: a service that is not
there answers UNIMPLEMENTED as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

from bellwether.errors import EngineError
from bellwether.scripted_engine.capture import Asked
from bellwether.scripted_engine.checkpoint import Checkpoint
from bellwether.scripted_engine.grpc_server import FAILED_PRECONDITION, INTERNAL, Call, Reply, Server, Status
from bellwether.scripted_engine.script import Script

if TYPE_CHECKING:
    from bellwether.scripted_engine.engine import ScriptedEngine


@dataclass(frozen=True, slots=True)
class Wire:
    """One of the wires."""

    name: str
    module: str
    service: str
    answers_with_id: bool
    """Whether each answer of Generate repeats the request's id."""
    server: dict[str, Any]
    """Fields of GetServerInfo."""

    @property
    def messages(self) -> ModuleType:
        return import_module(f"smg_grpc_proto.generated.{self.module}_pb2")


WIRES = {
    "vllm": Wire("vllm", "vllm_engine", "VllmEngine", False, {"server_type": "vllm-grpc", "data_parallel_size": 1}),
    "sglang": Wire("sglang", "sglang_scheduler", "SglangScheduler", True, {"server_type": "grpc"}),
    "tokenspeed": Wire("tokenspeed", "tokenspeed_scheduler", "TokenSpeedScheduler", True, {}),
}


def answers(wire: Wire, script: Script, request_id: str, prompt_tokens: int, stream: bool) -> Iterator[bytes]:
    """Give the messages of one answer, serialised. Counts of tokens run up from chunk to chunk."""
    messages = wire.messages
    response = messages.GenerateResponse()
    if wire.answers_with_id:
        response.request_id = request_id
    total = sum(map(len, script.chunks))
    if stream:  # one message filled again and again: a third of the time of one for each chunk
        chunk, sent = response.chunk, 0
        chunk.SetInParent()  # else a chunk of nothing but zeros is none
        chunk.prompt_tokens = prompt_tokens
        for piece in script.chunks:
            sent += len(piece)
            chunk.token_ids[:] = piece
            chunk.completion_tokens = sent
            yield response.SerializeToString()
    complete = response.complete  # takes the place of the chunk
    complete.output_ids.extend(script.ids)
    complete.finish_reason = script.finish_reason
    complete.prompt_tokens = prompt_tokens
    complete.completion_tokens = total
    if isinstance(script.matched, str):
        complete.matched_stop_str = script.matched
    elif script.matched is not None:
        complete.matched_token_id = script.matched
    yield response.SerializeToString()


def asked(request: Any) -> Asked:
    """Return what a Generate request says, by the fields of a capture."""
    rest = type(request)()
    for field, value in request.ListFields():  # the prompt's ids one by one would take most of the time
        if field.name not in ("request_id", "tokenized", "text", "sampling_params", "stream"):
            _set(rest, field, value)
    said = MessageToDict(rest, preserving_proto_field_name=True)
    sampling = MessageToDict(
        request.sampling_params, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    bound = request.sampling_params.WhichOneof("constraint")
    tokenized = request.HasField("tokenized")
    text = request.tokenized.original_text if tokenized else getattr(request, "text", "")
    return {
        "stream": request.stream,
        "input_ids": _ids(request),
        "text": text or None,
        "stop": sampling.pop("stop", []),
        "constraint": {bound: sampling.pop(bound)} if bound else None,
        "sampling": sampling,
        "other": said,
        "body": None,
    }


def _ids(request: Any) -> list[int] | None:
    return list(request.tokenized.input_ids) if request.HasField("tokenized") else None


def _set(message: Any, field: Any, value: Any) -> None:
    if field.is_repeated or field.message_type is not None:
        getattr(message, field.name).MergeFrom(value)
    else:
        setattr(message, field.name, value)


def server(engine: ScriptedEngine, wire: Wire, checkpoint: Checkpoint) -> Server:
    """Return a server of one checkpoint, not started yet. Raises EngineError when its folder is malformed."""
    messages = wire.messages
    service = messages.DESCRIPTOR.services_by_name[wire.service]

    def fixed(message: Any) -> Call:
        reply = Reply((message.SerializeToString(),))
        return lambda body: reply

    def abort(body: bytes) -> Reply:
        request = _parse(messages.AbortRequest, body)
        one = "request_id" in request.DESCRIPTOR.fields_by_name
        known = [engine.abort(each) for each in ([request.request_id] if one else request.request_ids)]
        answer = messages.AbortResponse(**{"success": all(known)} if one else {})
        return Reply((answer.SerializeToString(),))

    def generate(body: bytes) -> Reply:
        request = _parse(messages.GenerateRequest, body)
        prompt_tokens = len(request.tokenized.input_ids)
        if not prompt_tokens and getattr(request, "text", "") and checkpoint.tokenizer is not None:
            prompt_tokens = len(checkpoint.tokenizer.encode(request.text).ids)
        try:
            record = engine.begin(
                request.request_id,
                checkpoint=checkpoint,
                wire=wire.name,
                route="Generate",
                read=lambda: asked(request),
                prompt=lambda: _ids(request),
                size=len(body),
                prompt_tokens=prompt_tokens,
            )
        except EngineError as error:
            raise Status(FAILED_PRECONDITION, str(error)) from None
        said = answers(wire, record.script, request.request_id, prompt_tokens, request.stream)
        return Reply(said, engine.start(record))

    calls = {
        "HealthCheck": fixed(messages.HealthCheckResponse(healthy=True, message="scripted")),
        "GetModelInfo": fixed(_known(messages.GetModelInfoResponse, checkpoint.facts)),
        "GetServerInfo": fixed(messages.GetServerInfoResponse(**wire.server)),
        "GetLoads": fixed(messages.GetLoadsResponse(dp_rank_count=1, loads=[{"dp_rank": 0}])),
        "Abort": abort,
        "Generate": generate,
    }
    return Server({f"/{service.full_name}/{name}": call for name, call in calls.items()})


def _parse(kind: Any, body: bytes) -> Any:
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise Status(INTERNAL, f"the request is no {kind.DESCRIPTOR.name}: {error}") from None


def _known(message: Any, fields: dict[str, Any]) -> Any:
    """Return a message with those of `fields` it has."""
    return message(**{name: value for name, value in fields.items() if name in message.DESCRIPTOR.fields_by_name})
