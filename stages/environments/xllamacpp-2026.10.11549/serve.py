"""llama.cpp's HTTP server for one model: `python -I -B serve.py MODEL SOCKET CONTEXT`. It runs until it is killed.

It listens on a Unix socket, and no socket of another kind can be opened (seccomp, where the system has it): there is no
port that another program could take, and no way to the network. The first line it prints is JSON: which release it is,
and the date by its clock.

What its answers could depend on is set: one slot, one thread, no memory of earlier prompts, no opening of a final
assistant turn (which it would leave open by itself, and others do not).
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import platform
import sys
import threading
from datetime import date
from importlib.metadata import version
from pathlib import Path

PACKAGE = "xllamacpp"


def cut_the_network() -> None:
    """Leave no kind of socket but Unix ones, where the system can."""
    if sys.platform != "linux":
        return
    spec = importlib.util.spec_from_file_location("jail", Path(__file__).resolve().parents[1] / "jail.py")
    jail = sys.modules["jail"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(jail)
    ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS, without which a filter needs root
    try:
        jail.seccomp(jail.no_network_program(platform.machine()))
    except jail.Unprotected as error:
        print(f"the network stays open: {error}", file=sys.stderr)


def main(model: str, address: str, context: int) -> None:
    """Serve a model file at a socket's path."""
    cut_the_network()
    import xllamacpp

    print(json.dumps({"version": version(PACKAGE), "date": date.today().isoformat()}), flush=True)
    settings = xllamacpp.CommonParams()
    settings.model.path = model
    settings.hostnames = [address]
    settings.n_ctx = context
    settings.n_parallel = 1
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.n_threads_http = 4
    settings.warmup = False
    settings.fit_params = False
    settings.offline = True
    settings.ui = False
    settings.endpoint_props = False
    settings.prefill_assistant = False
    settings.cache_prompt = False
    settings.cache_ram_mib = 0
    settings.n_ctx_checkpoints = 0
    settings.verbosity = 1
    server = xllamacpp.Server(settings)
    threading.Event().wait()
    del server


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
