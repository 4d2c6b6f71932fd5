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

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.json_format import MessageToDict

from bellwether.errors import EngineError
from bellwether.scripted_engine.capture import Asked
from bellwether.scripted_engine.checkpoint import Checkpoint
from bellwether.scripted_engine.ports import unbound
from bellwether.scripted_engine.script import Script

if TYPE_CHECKING:
    from bellwether.scripted_engine.engine import ScriptedEngine

OPTIONS = (
    ("grpc.so_reuseport", 0),  # else a port in use is shared in silence
    ("grpc.max_receive_message_length", -1),  # a prompt of a million tokens is 4 MB
    ("grpc.max_send_message_length", -1),
)


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
    said = MessageToDict(request, preserving_proto_field_name=True)
    for name in ("request_id", "tokenized", "text", "sampling_params", "stream"):
        said.pop(name, None)
    sampling = MessageToDict(
        request.sampling_params, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    bound = request.sampling_params.WhichOneof("constraint")
    tokenized = request.HasField("tokenized")
    text = request.tokenized.original_text if tokenized else getattr(request, "text", "")
    return {
        "stream": request.stream,
        "input_ids": list(request.tokenized.input_ids) if tokenized else None,
        "text": text or None,
        "stop": sampling.pop("stop", []),
        "constraint": {bound: sampling.pop(bound)} if bound else None,
        "sampling": sampling,
        "other": said,
        "body": None,
    }


async def serve(engine: ScriptedEngine, wire: Wire, checkpoint: Checkpoint, port: int) -> tuple[grpc.aio.Server, int]:
    """Serve a checkpoint on 127.0.0.1 in the running loop; return the server and its port.

    Raises:
        EngineError: the port is in use.
    """
    with socket.socket() as probe:  # gRPC would say the same, and print lines of its own
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise unbound(port, error) from None
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((_Calls(engine, wire, checkpoint).handlers(),))
    try:
        bound = server.add_insecure_port(f"127.0.0.1:{port}")
    except RuntimeError as error:
        raise unbound(port, error) from None
    await server.start()
    return server, bound


class _Calls:
    """The calls of one service at one address."""

    def __init__(self, engine: ScriptedEngine, wire: Wire, checkpoint: Checkpoint) -> None:
        self.engine = engine
        self.wire = wire
        self.messages = wire.messages
        self.checkpoint = checkpoint

    def handlers(self) -> grpc.GenericRpcHandler:
        service = self.messages.DESCRIPTOR.services_by_name[self.wire.service]
        request = {method.name: method.input_type.name for method in service.methods}
        calls = {
            "HealthCheck": self._fixed(self.messages.HealthCheckResponse(healthy=True, message="scripted")),
            "GetModelInfo": self._fixed(_known(self.messages.GetModelInfoResponse, self.checkpoint.facts)),
            "GetServerInfo": self._fixed(self.messages.GetServerInfoResponse(**self.wire.server)),
            "GetLoads": self._fixed(self.messages.GetLoadsResponse(dp_rank_count=1, loads=[{"dp_rank": 0}])),
            "Abort": self._abort,
        }
        found = {
            name: grpc.unary_unary_rpc_method_handler(
                call, request_deserializer=getattr(self.messages, request[name]).FromString
            )
            for name, call in calls.items()
        }
        found["Generate"] = grpc.unary_stream_rpc_method_handler(
            self._generate, request_deserializer=self.messages.GenerateRequest.FromString
        )
        return grpc.method_handlers_generic_handler(service.full_name, found)

    def _fixed(self, message: Any) -> Any:
        answer = message.SerializeToString()

        async def call(request: Any, context: grpc.aio.ServicerContext) -> bytes:
            return answer

        return call

    async def _abort(self, request: Any, context: grpc.aio.ServicerContext) -> bytes:
        one = "request_id" in request.DESCRIPTOR.fields_by_name
        known = [self.engine.abort(each) for each in ([request.request_id] if one else request.request_ids)]
        answer = self.messages.AbortResponse
        return (answer(success=all(known)) if one else answer()).SerializeToString()

    async def _generate(self, request: Any, context: grpc.aio.ServicerContext) -> None:
        ids = len(request.tokenized.input_ids)
        if not ids and getattr(request, "text", "") and self.checkpoint.tokenizer is not None:
            ids = len(self.checkpoint.tokenizer.encode(request.text).ids)
        try:
            record = self.engine.begin(
                request.request_id,
                checkpoint=self.checkpoint,
                wire=self.wire.name,
                route="Generate",
                read=lambda: asked(request),
                size=request.ByteSize(),
                prompt_tokens=ids,
            )
        except EngineError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        with self.engine.under_way(record) as end:
            messages = answers(self.wire, record.script, request.request_id, ids, request.stream)
            last = None
            for message in messages:
                if last is not None:
                    await context.write(last)
                last = message
            end()  # before the last message: whoever has the answer finds the capture written
            await context.write(last)


def _known(message: Any, fields: dict[str, Any]) -> Any:
    """Return a message with those of `fields` it has."""
    return message(**{name: value for name, value in fields.items() if name in message.DESCRIPTOR.fields_by_name})
