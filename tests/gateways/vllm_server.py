"""vLLM's render server on a socket, as `vllm launch render` builds it; run by vLLM's Python.

usage: vllm_server.py STAGES FOLDER PORT TOOL_PARSER REASONING_PARSER

Its application is that of the witness of this release, which leaves out only the class of a model nobody loads.
"""

import asyncio
import shutil
import sys
from pathlib import Path

stages, folder, port, tool_parser, reasoning_parser = sys.argv[1:]
sys.path.insert(0, str(Path(stages) / "environments" / "vllm-0.33.0"))

import witness  # noqa: E402, I001  prepares vLLM, and finds what the releases share
import vllm_front_end  # noqa: E402
import uvicorn  # noqa: E402

release = vllm_front_end.Release("0.33.0", witness.make_arg_parser, witness.stream, "")
settings = {"tool_parser": tool_parser, "reasoning_parser": reasoning_parser, "options": {}}
copy, _ = vllm_front_end.working_copy(Path(folder), None)
loop = asyncio.new_event_loop()
try:
    app = vllm_front_end.application(copy, settings, release, loop)
finally:
    shutil.rmtree(copy)
server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=int(port), lifespan="off", log_level="warning"))
loop.run_until_complete(server.serve())
