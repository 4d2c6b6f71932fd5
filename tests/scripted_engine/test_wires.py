"""The gRPC wires, asked by clients made of the generated stubs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bellwether.chunk_plans import chunk_plans
from bellwether.errors import EngineError
from bellwether.scripted_engine import ScriptedEngine
from bellwether.scripted_engine.script import ScriptFile, script
from bellwether.scripted_engine.wires import WIRES, answers
from scripted_engine.workers import STUBS, Worker, served, talk
from support import snapshot

EACH_WIRE = pytest.mark.parametrize("wire", STUBS)
IDS = st.integers(0, (1 << 32) - 1)


def told(answer: Any) -> tuple:
    """Return one answer as (kind, ids, prompt tokens, completion tokens)."""
    kind = answer.WhichOneof("response")
    one = getattr(answer, kind)
    ids = one.token_ids if kind == "chunk" else one.output_ids
    return kind, list(ids), one.prompt_tokens, one.completion_tokens


@EACH_WIRE
@given(chunks=st.lists(st.lists(IDS, max_size=4), max_size=6), prompt=st.integers(0, 1 << 20))
def test_any_script_is_a_message_per_chunk_and_then_the_whole(wire: str, chunks: list[list[int]], prompt: int) -> None:
    """Completion tokens run up, as the real servers count them."""
    messages = answers(WIRES[wire], script(chunks), "id", prompt, True)
    parsed = [told(WIRES[wire].messages.GenerateResponse.FromString(message)) for message in messages]

    whole = [token for chunk in chunks for token in chunk]
    counts = [sum(map(len, chunks[: number + 1])) for number in range(len(chunks))]
    expected = [("chunk", chunk, prompt, count) for chunk, count in zip(chunks, counts, strict=True)]
    assert parsed == [*expected, ("complete", whole, prompt, len(whole))]


@EACH_WIRE
def test_every_chunk_plan_arrives_as_it_is_cut(tmp_path: Path, wire: str) -> None:
    ids = list(range(1000, 1041))
    plans = chunk_plans(len(ids))

    async def use(engine: ScriptedEngine, worker: Worker) -> dict[str, list[int]]:
        lengths = {}
        for name, plan in plans.items():
            left = iter(ids)
            engine.expect(name, [[next(left) for _ in range(length)] for length in plan])
            *chunks, complete = map(told, await worker.generate(f"{name}-0192", [5]))
            assert complete == ("complete", ids, 1, 41)
            assert [token for chunk in chunks for token in chunk[1]] == ids
            lengths[name] = [len(chunk[1]) for chunk in chunks]
            assert [capture.answered_by for capture in engine.take(name)] == [name]
        return lengths

    assert talk(wire, served(tmp_path), use) == plans


@EACH_WIRE
def test_a_full_answer_is_one_message(tmp_path: Path, wire: str) -> None:
    async def use(engine: ScriptedEngine, worker: Worker) -> list[Any]:
        engine.expect("a", [[1], [2, 3]], "stop", 3)
        return await worker.generate("a", [5, 6, 7], stream=False)

    (complete,) = talk(wire, served(tmp_path), use)
    assert told(complete) == ("complete", [1, 2, 3], 3, 3)
    assert complete.complete.matched_token_id == 3
    assert getattr(complete, "request_id", "a") == "a"


@EACH_WIRE
@pytest.mark.parametrize("reason", ["stop", "length", "abort", "tool_calls", "error", "tired of it"])
def test_finish_reasons_are_sent_as_they_are(tmp_path: Path, wire: str, reason: str) -> None:
    async def use(engine: ScriptedEngine, worker: Worker) -> str:
        engine.expect("a", [[1]], reason, "END")
        *_, last = await worker.generate("a", [5])
        assert last.complete.matched_stop_str == "END"
        assert engine.take("a")[0].finish_reason == reason
        return last.complete.finish_reason

    assert talk(wire, served(tmp_path), use) == reason


@EACH_WIRE
def test_a_stop_that_is_the_id_0_is_told_from_none(tmp_path: Path, wire: str) -> None:
    async def use(engine: ScriptedEngine, worker: Worker) -> list[str | None]:
        engine.expect("none", [[1]])
        engine.expect("zero", [[1]], "stop", 0)
        return [(await worker.generate(key, [5]))[-1].complete.WhichOneof("matched_stop") for key in ("none", "zero")]

    assert talk(wire, served(tmp_path), use) == [None, "matched_token_id"]


@EACH_WIRE
def test_a_request_nobody_scripted_gets_one_id_that_ends_the_turn(tmp_path: Path, wire: str) -> None:
    async def use(engine: ScriptedEngine, worker: Worker) -> tuple:
        first = [told(answer) for answer in await worker.generate("unknown-0192", [5])]
        engine.expect("*", [[8, 9]])
        second = [told(answer) for answer in await worker.generate("other-0192", [5])]
        return first, second, [[one.answered_by for one in engine.take(key)] for key in ("unknown", "other")]

    first, second, answered_by = talk(wire, served(tmp_path, eos_ids=(7, 8)), use)
    assert first == [("chunk", [7], 1, 1), ("complete", [7], 1, 1)]
    assert second == [("chunk", [8, 9], 1, 2), ("complete", [8, 9], 1, 2)]
    assert answered_by == [[None], ["*"]]


@EACH_WIRE
def test_a_capture_holds_all_the_request_said(tmp_path: Path, wire: str) -> None:
    """Numbers are those that were sent: 0.7 is no 0.699999988."""

    async def use(engine: ScriptedEngine, worker: Worker) -> Any:
        engine.expect("case", [[1], [2]], "length")
        sampling = {
            "temperature": 0.7,
            "top_p": 1.0,
            "stop": ["END", "\n"],
            "json_schema": '{"type": "object"}',
            "n": 1,
        }
        await worker.generate("case-0192-ab", [5, 6], sampling_params=sampling, data_parallel_rank=3)
        (capture,) = engine.take("case")
        return capture

    capture = talk(wire, served(tmp_path, model="Qwen/Qwen3-8B"), use)
    assert (capture.request_id, capture.model, capture.wire, capture.route) == (
        "case-0192-ab",
        "Qwen/Qwen3-8B",
        wire,
        "Generate",
    )
    assert (capture.input_ids, capture.text, capture.stream) == ([5, 6], None, True)
    assert {name: capture.sampling[name] for name in ("temperature", "top_p", "n")} == {
        "temperature": 0.7,
        "top_p": 1.0,
        "n": 1,
    }
    assert capture.sampling["skip_special_tokens"] is False
    assert capture.stop == ["END", "\n"]
    assert capture.constraint == {"json_schema": '{"type": "object"}'}
    assert capture.other == {"data_parallel_rank": 3}
    assert (capture.prompt_tokens, capture.completion_tokens, capture.ended) == (2, 2, "complete")
    assert (capture.answered_by, capture.finish_reason, capture.aborted) == ("case", "length", False)


@EACH_WIRE
def test_text_sent_beside_the_ids_is_captured(tmp_path: Path, wire: str) -> None:
    async def use(engine: ScriptedEngine, worker: Worker) -> Any:
        request = worker.messages.GenerateRequest(
            request_id="a", tokenized={"original_text": "Hello", "input_ids": [5]}
        )
        [answer async for answer in worker.stub.Generate(request)]
        return engine.take("a")[0]

    capture = talk(wire, served(tmp_path), use)
    assert (capture.input_ids, capture.text, capture.stream) == ([5], "Hello", False)


def test_a_prompt_of_text_alone_is_counted_by_the_checkpoints_tokenizer() -> None:
    """The vLLM wire can send text. "Hello world" is two ids of Qwen3: 9707, 1879."""

    async def use(engine: ScriptedEngine, worker: Worker) -> Any:
        request = worker.messages.GenerateRequest(request_id="a", text="Hello world")
        (answer,) = [answer async for answer in worker.stub.Generate(request)]
        return answer.complete.prompt_tokens, engine.take("a")[0]

    counted, capture = talk("vllm", served(snapshot("qwen3-8b")), use)
    assert (counted, capture.prompt_tokens) == (2, 2)
    assert (capture.input_ids, capture.text) == (None, "Hello world")


@EACH_WIRE
def test_a_client_that_goes_away_is_on_the_capture(tmp_path: Path, wire: str) -> None:
    """It reads one chunk of a stream larger than what may be under way unread, and hangs up."""

    async def use(engine: ScriptedEngine, worker: Worker) -> list[str]:
        engine.expect("a", [[1 << 31] * 1000] * 3000)
        call = worker.stub.Generate(
            worker.messages.GenerateRequest(request_id="a-1", stream=True, tokenized={"input_ids": [5]})
        )
        await call.read()
        call.cancel()
        async with asyncio.timeout(30):
            while engine.closed_early == 0:
                await asyncio.sleep(0.01)
        engine.expect("b", [[1]])
        await worker.generate("b", [5])
        return [capture.ended for key in ("a", "b") for capture in engine.take(key)]

    assert talk(wire, served(tmp_path), use) == ["closed", "complete"]


@EACH_WIRE
def test_an_abort_is_on_the_capture_and_counted(tmp_path: Path, wire: str) -> None:
    async def use(engine: ScriptedEngine, worker: Worker) -> tuple:
        engine.expect("a", [[1]])
        await worker.generate("a-1", [5])
        many = wire == "vllm"
        for request_id in ("a-1", "unknown"):
            await worker.stub.Abort(
                worker.messages.AbortRequest(**{"request_ids": [request_id]} if many else {"request_id": request_id})
            )
        return engine.aborts, [capture.aborted for capture in engine.take("a")]

    assert talk(wire, served(tmp_path), use) == (2, [True])


@EACH_WIRE
def test_a_gateway_learns_what_is_served(tmp_path: Path, wire: str) -> None:
    """It chooses parsers by the served name, and loads the tokenizer of the folder."""
    (tmp_path / "config.json").write_text(
        json.dumps(
            {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "bos_token_id": 4, "pad_token_id": None}
        )
    )

    async def use(engine: ScriptedEngine, worker: Worker) -> tuple:
        health = await worker.stub.HealthCheck(worker.messages.HealthCheckRequest())
        info = await worker.stub.GetModelInfo(worker.messages.GetModelInfoRequest())
        await worker.stub.GetServerInfo(worker.messages.GetServerInfoRequest())
        loads = await worker.stub.GetLoads(worker.messages.GetLoadsRequest(include=["core"]))
        return health.healthy, info, loads.dp_rank_count

    healthy, info, ranks = talk(
        wire, served(tmp_path, model="Qwen/Qwen3-8B", eos_ids=(7, 9), vocabulary_size=151936), use
    )
    assert healthy is True
    assert ranks == 1
    assert (info.served_model_name, info.model_path, info.tokenizer_path) == (
        "Qwen/Qwen3-8B",
        str(tmp_path),
        str(tmp_path),
    )
    assert (info.vocab_size, list(info.eos_token_ids), info.model_type) == (151936, [7, 9], "qwen3")
    assert (info.bos_token_id, info.pad_token_id, list(info.architectures)) == (4, 0, ["Qwen3ForCausalLM"])
    assert info.max_context_length >= 1 << 20
    assert getattr(info, "is_generation", True) is True


@EACH_WIRE
@pytest.mark.parametrize("call", ["GetTokenizer", "SubscribeKvEvents"])
def test_what_is_not_offered_is_unimplemented(tmp_path: Path, wire: str, call: str) -> None:
    async def use(engine: ScriptedEngine, worker: Worker) -> grpc.StatusCode:
        from smg_grpc_proto.generated import common_pb2

        with pytest.raises(grpc.aio.AioRpcError) as error:
            [one async for one in getattr(worker.stub, call)(getattr(common_pb2, f"{call}Request")())]
        return error.value.code()

    assert talk(wire, served(tmp_path), use) is grpc.StatusCode.UNIMPLEMENTED


def test_another_wire_is_unimplemented(tmp_path: Path) -> None:
    """That is how a gateway finds out what a worker speaks."""

    async def run() -> grpc.StatusCode:
        from smg_grpc_proto.generated import sglang_scheduler_pb2, sglang_scheduler_pb2_grpc

        async with ScriptedEngine() as engine:
            url = await engine.serve(served(tmp_path), "vllm")
            async with grpc.aio.insecure_channel(url.removeprefix("grpc://")) as channel:
                stub = sglang_scheduler_pb2_grpc.SglangSchedulerStub(channel)
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await stub.HealthCheck(sglang_scheduler_pb2.HealthCheckRequest())
        return error.value.code()

    assert asyncio.run(run()) is grpc.StatusCode.UNIMPLEMENTED


@EACH_WIRE
def test_a_prompt_of_a_million_ids_arrives(tmp_path: Path, wire: str) -> None:
    """gRPC's own limit is 4 MB a message."""
    ids = [1 << 31] * 1_000_000

    async def use(engine: ScriptedEngine, worker: Worker) -> bool:
        engine.expect("a", [[1]])
        ((_, _, prompt, _),) = map(told, await worker.generate("a", ids, stream=False))
        return prompt == len(ids) and engine.take("a")[0].input_ids == ids

    assert talk(wire, served(tmp_path), use)


@EACH_WIRE
def test_a_request_is_refused_while_the_script_file_is_malformed(tmp_path: Path, wire: str) -> None:
    """Never answered by what stood there before."""
    path = tmp_path / "script.jsonl"
    path.write_text('{"key": "a", "chunks": [[1]]}\n')

    async def use(engine: ScriptedEngine, worker: Worker) -> tuple:
        before = told((await worker.generate("a-1", [5]))[-1])
        path.write_text('{"key": "a", "chunks": [[1]]\n')
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await worker.generate("a-2", [5])
        path.write_text('{"key": "a", "chunks": [[2]]}\n')
        after = told((await worker.generate("a-3", [5]))[-1])
        ended = [(one.request_id, one.ended, one.completion_tokens) for one in engine.take("a")]
        return before, error.value.details(), after, sorted(ended)

    before, details, after, ended = talk(wire, served(tmp_path), use, script_file=ScriptFile(path))
    assert before == ("complete", [1], 1, 1)
    assert details.startswith(f"{path}:1: ")
    assert after == ("complete", [2], 1, 1)
    assert ended == [("a-1", "complete", 1), ("a-2", "refused", 0), ("a-3", "complete", 1)]


@EACH_WIRE
def test_a_port_in_use_is_an_error_with_its_number(tmp_path: Path, wire: str) -> None:
    async def use(engine: ScriptedEngine, worker: Worker) -> str:
        url = await engine.serve(served(tmp_path), wire)
        with pytest.raises(EngineError) as error:
            await engine.serve(served(tmp_path), wire, int(url.rpartition(":")[2]))
        assert url.rpartition(":")[2] in str(error.value)
        return str(error.value)

    assert "in use" in talk(wire, served(tmp_path), use)
