"""SGLang's own HTTP application on a socket, without a scheduler and without a model; run by SGLang's Python.

usage: sglang_server.py STAGES FOLDER SLUG PORT TOOL_PARSER REASONING_PARSER

The routes, their checks and their error answers are SGLang's. What they ask, a tokenizer manager, is the one that the
witness of this release builds for its chat handler.
"""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

stages, folder, slug, port, tool_parser, reasoning_parser = sys.argv[1:]
sys.path.insert(0, str(Path(stages) / "environments" / "sglang-0.5.23"))

import witness  # noqa: E402, I001  prepares SGLang, and finds what the releases share
import sglang_front_end  # noqa: E402
import uvicorn  # noqa: E402

sys.modules["soundfile"] = ModuleType("soundfile")  # read for audio alone, and not among the pins
from sglang.srt.entrypoints import http_server  # noqa: E402
from sglang.srt.entrypoints.openai.serving_tokenize import OpenAIServingDetokenize, OpenAIServingTokenize  # noqa: E402

with sglang_front_end.named(Path(folder), slug) as path:
    front = witness.Front(path, tool_parser, reasoning_parser, False)
manager = front._manager
manager.served_model_name = slug
manager.is_generation = True
manager.request_logger = SimpleNamespace(log_requests=False)
manager.model_config.is_image_understandable_model = manager.model_config.is_audio_understandable_model = False
manager.model_config.context_len = 32768
manager.startup_time = 0.0


async def get_internal_state():
    return []


manager.get_internal_state = get_internal_state
http_server.set_global_state(
    SimpleNamespace(
        tokenizer_manager=manager, template_manager=front.chat.template_manager, scheduler_info={"max_req_input_len": 1}
    )
)
app = http_server.app
app.state.openai_serving_chat = front.chat
app.state.openai_serving_tokenize = OpenAIServingTokenize(manager, front.chat.template_manager)
app.state.openai_serving_detokenize = OpenAIServingDetokenize(manager)
uvicorn.run(app, host="127.0.0.1", port=int(port), lifespan="off", log_level="warning")
