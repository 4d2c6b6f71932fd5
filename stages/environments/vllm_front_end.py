"""vLLM's own front end without an engine: what the scripts of its releases share. Runs in vLLM's Python, on a CPU.

The server is that of `vllm launch render`: its application, built by its own code from its own options, and asked over
ASGI. So a request passes its validation, its renderer and its handlers of errors, and nothing but a socket is missing.
An output is parsed by the code of its derender route, called directly: over HTTP every chunk would replay all earlier
ones. Its text comes from the incremental detokenizer of the engine, primed with the prompt, special tokens kept.

| what vLLM is told | why |
|---|---|
| an architecture by name, and a class without layers for it | the real class takes 20 s and a process of its own |
| a context of `CONTEXT` tokens | a narrowed config.json states none, and the length of a prompt is no question here |
| to keep special tokens, as its derender route does | a parser looks for them |
"""

from __future__ import annotations

import os

os.environ |= {
    "VLLM_TARGET_DEVICE": "cpu",  # before vLLM is imported: it looks for a device then
    "VLLM_PLUGINS": "",
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

import asyncio
import datetime
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import regex
import vllm
from serve import Refused
from torch import nn
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import chat_template_utils
from vllm import AsyncEngineArgs, ModelRegistry
from vllm.config import VllmConfig
from vllm.entrypoints.launchers.render.app_state import init_render_app_state
from vllm.entrypoints.launchers.render.entry import build_app
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.serve import create_error_response
from vllm.parser import ParserManager
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine.detokenizer import IncrementalDetokenizer

CONTEXT = 1 << 20
NAME = "model"
"""What the server calls its model; a request has to name it."""
STAND_IN = "pythonic"
"""Tool parser of the renderer alone, where the manifest names none. Without one the server refuses every request with
tools, which says how it was started and nothing of the prompt; outputs are never read by it."""
OPTIONS = {"architecture", "tokenizer_mode", "content_format"}

regex._main._MAXCACHE = 1 << 14
"""Patterns that stay compiled. A parser of Mistral's outputs compiles a thousand as it is made, and the library keeps
half of them: each parser took 0.2 s."""

Answer = Callable[[dict], dict]
Delta = Any
"""vLLM's DeltaMessage: reasoning, content and tool_calls of one streamed chunk, each possibly absent."""
Stream = Callable[[Any, ChatCompletionRequest, list[int], list], Iterator[Delta | None]]
"""(derenderer, request, prompt ids, [(text, ids, finished)…]) → what the server sends per chunk; releases differ."""


@dataclass(frozen=True, slots=True)
class Release:
    """What releases differ in."""

    version: str
    add_arguments: Callable[[FlexibleArgumentParser], Any]
    """Adds the server's options to a parser of arguments."""
    stream: Stream
    """What the server sends for an output that comes in chunks."""
    compared: str
    """How its answers in process were compared with those of the same server over HTTP, and what came of it."""


class WithoutLayers(nn.Module):
    """What vLLM asks of a model that writes text, to stand for an architecture whose weights nobody loads."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()

    def embed_input_ids(self, input_ids: Any) -> Any:
        raise NotImplementedError

    def forward(self, input_ids: Any, positions: Any) -> Any:
        raise NotImplementedError

    def compute_logits(self, hidden_states: Any) -> Any:
        raise NotImplementedError


def load(release: Release, settings: dict) -> tuple[Answer, dict]:
    """Build the front end of the checkpoint in `settings`, and return what answers questions, and the facts.

    `settings` are those of `serve`. Options: `architecture`, where transformers names none for the model type;
    `tokenizer_mode` and `content_format`, as the server's options of these names.

    Raises:
        ValueError: another release is installed, an option is not known, or vLLM does not start on the checkpoint.
    """
    if vllm.__version__ != release.version:
        raise ValueError(f"vLLM {release.version} is expected, and {vllm.__version__} is installed")
    options = settings["options"]
    if unknown := sorted(set(options) - OPTIONS):
        raise ValueError(f"unknown options for vLLM: {', '.join(unknown)}")
    if settings.get("clock"):
        set_clock(datetime.datetime.fromisoformat(settings["clock"]))
    folder, added = working_copy(Path(settings["model"]), options.get("architecture"))
    loop = asyncio.new_event_loop()
    try:
        app = application(folder, settings, release, loop)
    except (Exception, SystemExit) as error:
        reason = str(error).replace(str(folder), settings["slug"])
        raise ValueError(f"vLLM does not start on {settings['slug']}: {type(error).__name__}: {reason}") from error
    finally:
        shutil.rmtree(folder)
    server = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://vllm")
    derenderer = app.state.online_derenderer

    def post(path: str, body: str) -> dict:
        headers = {"Content-Type": "application/json"}
        return sent_back(loop.run_until_complete(server.post(path, content=body.encode(), headers=headers)))

    def answer(question: dict) -> dict:
        match question["kind"]:
            case "render":
                rendered = post("/v1/chat/completions/render", with_model(question["request"]))
                return {"prompt_ids": rendered["token_ids"], "prompt_text": None}
            case "tokenize":
                body = {"model": NAME, "prompt": question["text"], "add_special_tokens": False}
                return {"ids": post("/tokenize", json.dumps(body))["tokens"]}
            case "detokenize":
                pieces = detokenized(derenderer.renderer.get_tokenizer(), [], question["ids"])
                return {"text": "".join(pieces), "pieces": pieces}
            case "parse":
                try:
                    request = ChatCompletionRequest.model_validate(json.loads(with_model(question["request"])))
                except Exception:
                    post("/v1/chat/completions/render", with_model(question["request"]))  # refuses, in its own words
                    raise
                return {"modes": parsed(derenderer, request, question, release.stream)}
        raise ValueError(f"vLLM is not asked for {question['kind']}")

    return answer, facts_of(app.state, release, settings, added)


def facts_of(state: Any, release: Release, settings: dict, added: dict) -> dict:
    """Return what the provenance is to say of a loaded front end."""
    renderer, parser = state.online_renderer.renderer, state.online_derenderer.parser
    classes = [
        f"{found.__module__}.{found.__qualname__}"
        for found in (parser and parser.reasoning_parser_cls, parser and parser.tool_parser_cls)
        if found
    ]
    facts = {
        "versions": {name: metadata.version(name) for name in ("torch", "transformers", "tokenizers")},
        "render": "POST /v1/chat/completions/render of the application of `vllm launch render`, in process over ASGI",
        "tokenize": "POST /tokenize of the same application",
        "parse": "the parsing of POST /v1/chat/completions/derender, in process, of the engine's own text",
        "detokenize": "the engine's incremental detokenizer, special tokens kept",
        "compared over HTTP": release.compared,
        "tokenizer_mode": state.online_renderer.model_config.tokenizer_mode,
        "tokenizer": type(renderer.tokenizer).__name__,
        "renderer": type(renderer).__name__,
        "parsers": classes,
        "tool parser that lets requests through": settings["tool_parser"] or STAND_IN,
        "added to config.json": added,
        "context": CONTEXT,
    }
    return facts | ({"clock": settings["clock"]} if settings.get("clock") else {})


# ── the server ───────────────────────────────────────────────────────────────────────────────────────────────────────


def working_copy(model: Path, architecture: str | None) -> tuple[Path, dict]:
    """Return a folder vLLM can load, and what was added to config.json for it.

    Files are linked. A vendor's tokenizer file stands at the top, under the name it has in the checkpoint.

    Raises:
        ValueError: nobody names an architecture for this model type.
    """
    config = json.loads((model / "config.json").read_text("utf-8"))
    if not config.get("architectures"):
        named = architecture or MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config["model_type"])
        if named is None:
            raise ValueError(
                f"transformers names no architecture for {config['model_type']}: state one in the manifest"
            )
        added = {"architectures": [named if isinstance(named, str) else named[0]]}
    else:
        added = {}
    folder = Path(tempfile.mkdtemp(prefix="bellwether-vllm-"))
    for file in model.iterdir():
        if file.name not in ("config.json", "vendor"):
            (folder / file.name).symlink_to(file.resolve())
    for file in sorted((model / "vendor").glob("*")):
        if file.name == "tekken.json" or ".model.v" in file.name:
            name = file.name if file.suffix == ".json" else f"tokenizer.model{file.suffix}"
            (folder / name).symlink_to(file.resolve())
        if file.suffix == ".tiktoken":
            os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(file.parent)
    given = {key: value for key, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(given | added), "utf-8")
    return folder, added


def application(folder: Path, settings: dict, release: Release, loop: asyncio.AbstractEventLoop) -> Any:
    """Return the application of `vllm launch render` over `folder`, with its state."""
    options = settings["options"]
    parser = FlexibleArgumentParser()
    release.add_arguments(parser)
    given = ["--model", str(folder), "--served-model-name", NAME, "--max-model-len", str(CONTEXT)]
    given += ["--tokenizer-mode", options["tokenizer_mode"]] if "tokenizer_mode" in options else []
    given += ["--chat-template-content-format", options["content_format"]] if "content_format" in options else []
    if settings["tool_parser"]:
        given += ["--enable-auto-tool-choice", "--tool-call-parser", settings["tool_parser"]]
    if settings["reasoning_parser"]:
        given += ["--reasoning-parser", settings["reasoning_parser"]]
    args = parser.parse_args(given)
    for name in json.loads((folder / "config.json").read_text("utf-8"))["architectures"]:
        ModelRegistry.register_model(name, WithoutLayers)
    engine = AsyncEngineArgs.from_cli_args(args)
    model_config = engine.create_model_config()
    model_config.quantization = None
    config = VllmConfig(
        model_config=model_config,
        logging_config=engine.create_logging_config(),
        structured_outputs_config=engine.create_structured_outputs_config(),
    )
    app = build_app(args, ("render",))
    loop.run_until_complete(init_render_app_state(config, app.state, args))
    if not settings["tool_parser"]:
        renderer = app.state.online_renderer
        renderer.parser = ParserManager.get_parser(
            tool_parser_name=STAND_IN, reasoning_parser_name=settings["reasoning_parser"], enable_auto_tools=True
        )
        renderer.enable_auto_tools = True
    return app


def with_model(request: str) -> str:
    """Return the body that names the model, all else as it was written."""
    rest = request.lstrip().removeprefix("{")
    return f'{{"model": "{NAME}"{"" if rest.lstrip().startswith("}") else ", "}{rest}'


def sent_back(response: httpx.Response) -> dict:
    """Return the server's answer. Raises Refused for what it refuses, RuntimeError for what went wrong inside it."""
    if response.status_code == 200:
        return response.json()
    error = response.json()["error"]
    if response.status_code == 400:
        raise Refused(error["type"], error["message"])
    raise RuntimeError(f"{response.status_code} {error['type']}: {error['message']}")


def set_clock(moment: datetime.datetime) -> None:
    """Make this process's templates, and the harmony renderer, see `moment`."""

    class Fixed(datetime.datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime.datetime:
            return moment

    chat_template_utils.datetime = Fixed
    os.environ["VLLM_SYSTEM_START_DATE"] = f"{moment:%Y-%m-%d}"


# ── outputs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def detokenized(tokenizer: Any, prompt_ids: list[int], ids: Sequence[int], *, spaces: bool = True) -> list[str]:
    """Return the engine's piece of text for each of `ids`, special tokens kept."""
    params = SimpleNamespace(
        stop=None,
        min_tokens=0,
        include_stop_str_in_output=False,
        skip_special_tokens=False,
        spaces_between_special_tokens=spaces,
    )
    request = SimpleNamespace(
        request_id="", sampling_params=params, prompt_token_ids=prompt_ids, prompt_embeds=None, external_req_id=""
    )
    detokenizer = IncrementalDetokenizer.from_new_request(tokenizer, request)
    pieces = []
    for token in ids:
        detokenizer.update([token], False)
        pieces.append(detokenizer.get_next_output_text(finished=False, delta=True))
    return pieces


def parsed(derenderer: Any, request: ChatCompletionRequest, question: dict, stream: Stream) -> dict[str, dict]:
    """Return what each mode makes of an output: a message, or how it was refused or failed.

    A parser sees the id that ends the turn, and no text of it, as in the engine. It comes with the last chunk; where
    every id comes alone, it does too.
    """
    prompt_ids, ids = question["prompt_ids"], question["ids"]
    ended = [] if question["stop_id"] is None else [question["stop_id"]]
    pieces = detokenized(
        derenderer.renderer.get_tokenizer(), prompt_ids, ids, spaces=request.spaces_between_special_tokens
    )

    def one_shot() -> dict:
        message = derenderer._parse_and_assemble(
            derenderer.renderer.get_tokenizer(),
            "".join(pieces),
            [*ids, *ended],
            request,
            derenderer._resolve_chat_template_kwargs(request),
            prompt_ids,
        )
        return {
            "content": message.content,
            "reasoning_content": message.reasoning,
            "tool_calls": [
                {"name": call.function.name, "arguments": call.function.arguments} for call in message.tool_calls
            ],
        }

    modes = {"one-shot": outcome(one_shot)}
    for name, lengths in question["plans"].items():
        chunks = chunked(pieces, ids, lengths, ended, alone=name == "per_token")
        modes[name] = outcome(lambda chunks=chunks: joined(stream(derenderer, request, prompt_ids, chunks)))
    return modes


def chunked(pieces: list, ids: list, lengths: list, ended: list, *, alone: bool) -> list[tuple[str, list, bool]]:
    """Return (text, ids, finished) per chunk; `ended` joins the last one, or stands `alone`."""
    chunks, start = [], 0
    for length in lengths:
        chunks.append(("".join(pieces[start : start + length]), list(ids[start : start + length])))
        start += length
    if alone and ended:
        chunks.append(("", ended))
    else:
        text, last = chunks.pop()
        chunks.append((text, [*last, *ended]))
    return [(text, part, place == len(chunks)) for place, (text, part) in enumerate(chunks, 1)]


def joined(deltas: Iterator[Delta | None]) -> dict:
    """Return the message a client puts together from a stream: texts joined per field, calls per index."""
    texts: dict[str, str | None] = {"content": None, "reasoning_content": None}
    calls: dict[int, dict[str, str]] = {}
    for delta in deltas:
        if delta is None:
            continue
        for name, more in (("content", delta.content), ("reasoning_content", delta.reasoning)):
            if more is not None:
                texts[name] = (texts[name] or "") + more
        for part in delta.tool_calls:
            call = calls.setdefault(part.index, {"name": "", "arguments": ""})
            if part.function is not None:
                call["name"] += part.function.name or ""
                call["arguments"] += part.function.arguments or ""
    return texts | {"tool_calls": [calls[index] for index in sorted(calls)]}


def outcome(measure: Callable[[], dict]) -> dict:
    """Return the message `measure` gives, or how it ended, told apart as the server's handlers of errors do."""
    try:
        return {"message": measure()}
    except Exception as error:
        said = create_error_response(error).error
        if said.code == 400:
            return {"refused": {"code": said.type, "message": said.message}}
        return {"failed": {"code": type(error).__name__, "message": str(error)}}
