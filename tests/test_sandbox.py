"""The sandbox: what runs inside answers and nothing else. Every breakout below is really tried from inside."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bellwether.errors import OracleError
from bellwether.sandbox import JAIL, Inside, Limits, Refused, Sandbox
from support import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="code of a vendor's is confined on Linux only")

ANYTHING = """
    def start(settings):
        def answer(code):
            names = {"settings": settings}
            exec(code, names)
            return names.get("result", "it worked")
        return answer, None
"""
"""A script that does what it is told, so that each attempt is a request."""

Open = Callable[..., Sandbox]


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A folder with an input, a secret beside it, a link to the secret and a module someone planted there."""
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    (inputs / "input.txt").write_text("given")
    (inputs / "planted.py").write_text("raise SystemExit('ran')")
    (tmp_path / "secret.txt").write_text("secret")
    (inputs / "link.txt").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "script.py").write_text(textwrap.dedent(ANYTHING))
    return tmp_path


@pytest.fixture
def open_sandbox(world: Path) -> Iterator[Open]:
    """`open_sandbox(script=…, **limits)` → a sandbox that may read `input.txt`; all are closed in the end."""
    opened: list[Sandbox] = []

    def build(script: str = ANYTHING, **limits: float) -> Sandbox:
        path = world / "script.py"
        path.write_text(textwrap.dedent(script))
        folder = world / "inputs"
        inside = Inside("probe", path, {"root": str(world)}, files=[folder / "input.txt"], listed=[folder])
        opened.append(Sandbox(inside, Limits(**{"request_seconds": 60, **limits})))
        return opened[-1]

    yield build
    for sandbox in opened:
        sandbox.close()


def snapshot(folder: Path) -> dict[str, tuple]:
    """Return all a test can see of a folder: names, bytes, modes, times."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() else None,
        )
        for path in sorted(folder.rglob("*"))
    }


# ── what is allowed ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_answers_and_reads_what_is_listed(open_sandbox: Open) -> None:
    """One process serves request after request; the listed input can be read."""
    sandbox = open_sandbox()
    assert sandbox.ask("result = 1 + 1") == 2
    assert sandbox.ask("result = open(settings['root'] + '/inputs/input.txt').read()") == "given"


def test_hands_back_what_the_script_knows_at_start(open_sandbox: Open) -> None:
    """`start` returns facts beside its function."""
    assert open_sandbox("def start(settings): return len, {'root': settings['root'] != ''}").facts == {"root": True}


def test_an_exception_of_the_script_is_a_refusal_and_the_next_request_is_served(open_sandbox: Open) -> None:
    """Class and message come out; a refusal is evidence, so the process lives on."""
    sandbox = open_sandbox()
    with pytest.raises(Refused, match=r"^ValueError: roles must alternate$"):
        sandbox.ask("raise ValueError('roles must alternate')")
    assert sandbox.ask("result = 'next'") == "next"


def test_an_error_raised_over_a_wall_is_no_refusal(open_sandbox: Open) -> None:
    """Libraries wrap what stops them into errors of their own; what the walls provoked is never the vendor's answer."""
    code = "try: open('/etc/passwd')\nexcept OSError as error: raise ValueError('no users') from {}"
    for cause in ("error", "KeyError('x')"):
        with pytest.raises(OracleError, match="ran into a limit: ValueError: no users"):
            open_sandbox().ask(code.format(cause).replace(" from KeyError('x')", ""))


def test_print_does_not_disturb_the_conversation(open_sandbox: Open) -> None:
    """Standard output belongs to the pipe of answers; print goes elsewhere."""
    assert open_sandbox().ask('print(\'{"id": 1, "result": 0}\'); result = 5') == 5


def test_ten_megabytes_go_in_and_come_out(open_sandbox: Open) -> None:
    """Longer than any pipe's buffer, in both directions."""
    sandbox = open_sandbox("def start(settings): return (lambda value: value), None")
    value = "é" * 5_000_000
    assert sandbox.ask(value) == value


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_json_values_pass_unchanged(open_sandbox: Open) -> None:
    """The wire is plain JSON lines: line ends, lone surrogates and key order survive it."""
    sandbox = open_sandbox("def start(settings): return (lambda value: value), None")

    @settings(max_examples=60, deadline=None)
    @given(value=json_values)
    def passes(value: object) -> None:
        assert json.dumps(sandbox.ask(value)) == json.dumps(value)

    passes()


# ── breakouts ────────────────────────────────────────────────────────────────────────────────────────────────────────

SYSCALL = "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"
FAIL = "\nif status < 0: raise OSError(ctypes.get_errno(), 'refused')"

WRITES = {
    "into the working folder": "open('bellwether-breakout', 'w')",
    "into /tmp": "open('/tmp/bellwether-breakout', 'w')",
    "into the home folder": "import os; open(os.path.expanduser('~/bellwether-breakout'), 'w')",
    "beside the input": "open(settings['root'] + '/inputs/new', 'w')",
    "onto the input": "open(settings['root'] + '/inputs/input.txt', 'a').write('more')",
    "onto the input, read and write": "open(settings['root'] + '/inputs/input.txt', 'r+')",
    "a file without a name": "import os; os.open(settings['root'], os.O_RDWR | os.O_TMPFILE)",
    "truncating the input": "import os; os.truncate(settings['root'] + '/inputs/input.txt', 0)",
    "deleting the input": "import os; os.unlink(settings['root'] + '/inputs/input.txt')",
    "renaming the input": "import os; os.rename(settings['root'] + '/inputs/input.txt', settings['root'] + '/x')",
    "changing its mode": "import os; os.chmod(settings['root'] + '/inputs/input.txt', 0o777)",
    "changing its times": "import os; os.utime(settings['root'] + '/inputs/input.txt', (1, 1))",
    "a folder": "import os; os.mkdir(settings['root'] + '/folder')",
    "a link": "import os; os.symlink('/etc/passwd', settings['root'] + '/inputs/other')",
    "a hard link": "import os; os.link(settings['root'] + '/secret.txt', settings['root'] + '/inputs/other')",
    "a pipe": "import os; os.mkfifo(settings['root'] + '/pipe')",
    "a memory file": "import os; os.memfd_create('x')",
}
READS = {
    "a secret": "result = open(settings['root'] + '/secret.txt').read()",
    "a secret through a link among the inputs": "result = open(settings['root'] + '/inputs/link.txt').read()",
    "a secret through dots": "result = open(settings['root'] + '/inputs/../secret.txt').read()",
    "an input that is not listed": "result = open(settings['root'] + '/inputs/planted.py').read()",
    "the folder above": "import os; result = os.listdir(settings['root'])",
    "the users of the system": "result = open('/etc/passwd').read()",
    "the host's name": "result = open('/etc/hostname').read()",
    "the checkout's history": f"result = open({str(ROOT / '.git' / 'HEAD')!r}).read()",
    "the checkout": f"import os; result = os.listdir({str(ROOT)!r})",
    "the parent's environment": "import os; result = open(f'/proc/{os.getppid()}/environ').read()",
    "the parent's descriptors": "import os; result = os.listdir(f'/proc/{os.getppid()}/fd')",
    "its own memory as a file": "result = open('/proc/self/mem', 'rb').read(1)",
    "the list of processes": "import os; result = os.listdir('/proc')",
    "a device": "result = open('/dev/mem', 'rb').read(1)",
    "by openat2": SYSCALL
    + "import os, struct\nhow = struct.pack('=QQQ', os.O_RDWR, 0, 0)\n"
    + "path = (settings['root'] + '/inputs/input.txt').encode()\n"
    + f"status = libc.syscall(437, -100, path, how, ctypes.c_size_t(24)){FAIL}",
}
NETWORK = {
    "TCP over IPv6": "import socket; socket.socket(socket.AF_INET6, socket.SOCK_STREAM)",
    "UDP": "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
    "an unnamed unix pair": "import socket; socket.socketpair()",
    "a raw socket": "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "netlink": "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
    "DNS": "import socket; socket.getaddrinfo('example.org', 80)",
    "HTTP": "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9/')",
    "io_uring": SYSCALL + f"status = libc.syscall(425, 8, bytes(120)){FAIL}",
}
PROCESSES = {
    "a child": "import os; os.fork()",
    "a child that stays behind": "import os, time\nif os.fork() == 0: time.sleep(1000)",
    "a shell": "import os; os.execv('/bin/sh', ['sh', '-c', 'true'])",
    "a shell as a child": "import subprocess; subprocess.run(['/bin/sh', '-c', 'true'])",
    "spawning": "import os; os.posix_spawn('/bin/sh', ['sh'], {})",
    "a fork bomb": "import os\nwhile True: os.fork()",
    "a thread": "import threading; threading.Thread(target=print).start()",
    "clone3": SYSCALL + f"status = libc.syscall(435, bytes(88), ctypes.c_size_t(88)){FAIL}",
    "vfork": SYSCALL + f"status = libc.syscall(58){FAIL}",
    "a signal to the parent": "import os, signal; os.kill(os.getppid(), signal.SIGCONT)",
    "a signal through a descriptor": "import os; fd = os.pidfd_open(os.getppid())",
    "tracing the parent": SYSCALL + f"import os; status = libc.ptrace(0x4206, os.getppid(), 0, 0){FAIL}",
    "reading the parent's memory": SYSCALL
    + f"import os; status = libc.syscall(310, os.getppid(), None, 0, None, 0, 0){FAIL}",
    "more memory than its limit": SYSCALL
    + f"import struct; status = libc.setrlimit(9, struct.pack('=QQ', 1 << 40, 1 << 40)){FAIL}",
    "limits of the parent": "import os, resource; resource.prlimit(os.getppid(), resource.RLIMIT_CORE, (0, 0))",
    "priority": "import os; os.nice(5)",
}
PRIVILEGES = {
    "another user": "import os; os.setuid(1)",
    "another root": "import os; os.chroot('/')",
    "a mount": SYSCALL + f"status = libc.mount(b'none', b'/tmp', b'tmpfs', 0, None){FAIL}",
    "new namespaces": SYSCALL + f"status = libc.unshare(0x10000000){FAIL}",
    "a kernel module": SYSCALL + f"status = libc.syscall(175, None, 0, b''){FAIL}",
    "a program in the kernel": SYSCALL + f"status = libc.syscall(321, 0, bytes(120), 120){FAIL}",
    "keys of the kernel": SYSCALL + f"status = libc.syscall(250, 0, -3, 1){FAIL}",
    "taking the filter off": SYSCALL + f"status = libc.prctl(22, 0, 0, 0, 0){FAIL}",
    "rebooting": SYSCALL + f"status = libc.syscall(169, 0, 0, 0, 0){FAIL}",
    "setting the clock": "import time; time.clock_settime(time.CLOCK_REALTIME, 0)",
}
IMPORTS = {
    "a module planted beside the input": "import planted",
    "this project": "import bellwether",
    "a package of another environment": "import pyarrow",
}
X86_ONLY = pytest.mark.skipif(os.uname().machine != "x86_64", reason="system calls by number")
ATTEMPTS = [
    pytest.param(code, id=f"{kind}: {name}", marks=[X86_ONLY] if "libc.syscall" in code else [])
    for kind, attempts in {
        "write": WRITES,
        "read": READS,
        "network": NETWORK,
        "process": PROCESSES,
        "privilege": PRIVILEGES,
        "import": IMPORTS,
    }.items()
    for name, code in attempts.items()
]


@pytest.mark.parametrize("code", ATTEMPTS)
def test_a_breakout_gives_no_evidence_and_changes_nothing(open_sandbox: Open, world: Path, code: str) -> None:
    """What the walls stop ends as a failed measurement: no result, no refusal, no trace outside."""
    sandbox = open_sandbox()
    before = snapshot(world)
    with pytest.raises(OracleError, match=r"^probe (ran into a limit|ended without an answer)"):
        sandbox.ask(code)
    assert snapshot(world) == before
    assert not [path for path in map(Path, ("/", "/tmp", Path.home())) if (path / "bellwether-breakout").exists()]
    with pytest.raises(OracleError, match="has ended"):  # the process is gone, whatever state it was in
        sandbox.ask("result = 1")


def test_no_connection_reaches_a_listener(open_sandbox: Open) -> None:
    """TCP to a port that listens on this machine: refused inside, and nobody knocked."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        with pytest.raises(OracleError, match="PermissionError"):
            open_sandbox().ask(f"import socket; socket.create_connection(('127.0.0.1', {port}))")
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_no_unix_socket_is_reached(open_sandbox: Open, world: Path) -> None:
    """A socket of the file system, such as a container engine's."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(world / "socket"))
        listener.listen()
        with pytest.raises(OracleError, match="PermissionError"):
            open_sandbox().ask(f"import socket; socket.socket(socket.AF_UNIX).connect({str(world / 'socket')!r})")


def test_another_process_of_the_same_user_lives_on(open_sandbox: Open) -> None:
    """Neither a signal, nor one sent by way of a pipe that changes hands, reaches it."""
    with subprocess.Popen(["sleep", "1000"]) as victim:
        try:
            for code in (
                f"import os; os.kill({victim.pid}, 9)",
                f"import fcntl; fcntl.fcntl(0, fcntl.F_SETOWN, {victim.pid})",
                "import fcntl, os; fcntl.fcntl(0, fcntl.F_SETFL, os.O_ASYNC)",
                SYSCALL + f"status = libc.syscall(234, {victim.pid}, {victim.pid}, 9){FAIL}",
            ):
                with pytest.raises(OracleError, match="PermissionError"):
                    open_sandbox().ask(code)
            assert victim.poll() is None
        finally:
            victim.kill()


def test_no_descriptor_of_the_parent_is_inherited(open_sandbox: Open, world: Path) -> None:
    """A file the parent holds open, inheritable, is not among the descriptors inside."""
    handle = os.open(world / "secret.txt", os.O_RDONLY)
    try:
        os.set_inheritable(handle, True)
        seen = open_sandbox().ask(
            "import os\nresult = []\n"
            "for fd in range(3, 1024):\n"
            "    try: os.fstat(fd); result.append(fd)\n"
            "    except OSError: pass"
        )
    finally:
        os.close(handle)
    assert len(seen) == 1  # the pipe that answers go into


def test_the_parents_environment_is_not_passed_on(open_sandbox: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and proxies stand in environment variables."""
    monkeypatch.setenv("BELLWETHER_SECRET", "x")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    seen = open_sandbox().ask("import os; result = dict(os.environ)")
    assert not {"BELLWETHER_SECRET", "HTTPS_PROXY", "PATH", "USER"} & set(seen)


def test_it_has_no_capability_and_can_gain_none(open_sandbox: Open) -> None:
    """As the kernel says of the process, whoever starts it: no capability, no new privileges, a filter in place."""
    sandbox = open_sandbox()
    lines = Path(f"/proc/{sandbox._process.pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"], status["Threads"]) == ("1", "2", "1")


# ── overruns ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "code",
    ["while True: pass", "import time; time.sleep(1e6)", "import sys\nwhile True: sys.stderr.write('x' * 65536)"],
    ids=["spinning", "sleeping", "talking to standard error"],
)
def test_what_does_not_end_is_ended(open_sandbox: Open, code: str) -> None:
    """The limit is wall time, so waiting counts as well."""
    sandbox = open_sandbox(request_seconds=0.5)
    with pytest.raises(OracleError, match=r"gave no answer within 0\.5 s"):
        sandbox.ask(code)
    assert sandbox._process.returncode == -signal.SIGKILL


def test_a_script_that_does_not_load_is_ended(open_sandbox: Open) -> None:
    """The start has a limit of its own."""
    with pytest.raises(OracleError, match=r"gave no answer within 0\.5 s"):
        open_sandbox("while True: pass", start_seconds=0.5)


def test_a_script_that_reads_nothing_cannot_block_the_parent(open_sandbox: Open) -> None:
    """A request longer than the pipe's buffer waits for a reader no longer than for an answer."""
    script = "def start(settings):\n    import time\n    return (lambda value: time.sleep(1e6)), None"
    sandbox = open_sandbox(script, request_seconds=0.5)
    with pytest.raises(OracleError, match="gave no answer"):
        sandbox.ask("x" * 10_000_000)


def test_eight_gigabytes_are_not_to_be_had(open_sandbox: Open) -> None:
    """Address space is bounded; running out of it is no answer."""
    with pytest.raises(OracleError, match="MemoryError"):
        open_sandbox(memory_bytes=1 << 30).ask("result = len(bytearray(8 << 30))")


def test_processor_time_is_bounded_even_when_nobody_watches(open_sandbox: Open) -> None:
    """The system ends the process by itself."""
    with pytest.raises(OracleError, match="ended without an answer"):
        open_sandbox(cpu_seconds=1).ask("while True: pass")


def test_an_answer_has_a_longest_length(open_sandbox: Open) -> None:
    """The parent stops reading; a gigabyte is never held."""
    with pytest.raises(OracleError, match="answers with more than 1,000,000 bytes"):
        open_sandbox(answer_bytes=1_000_000).ask("result = 'x' * 50_000_000")


# ── a script that lies about the conversation ────────────────────────────────────────────────────────────────────────

FORGE = """
    import os

    def start(settings):
        def answer(lines):
            os.write(3, lines.encode("latin-1"))
            return 0
        return answer, None
"""
"""Writes into the pipe of answers on its own account: descriptor 1 was copied to 3 before it was given away."""


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ('{"id": 1, "result": 7}\n{"id": 1, "result": 8}\n', "says more than what it is asked"),
        ("\n\n\n", "says more than what it is asked"),
        ("\x80\x81 no JSON", "no JSON"),
        ("[" * 200_000, "no JSON"),
        ("9" * 10_000, "no JSON"),
        ("null, ", "no JSON"),
    ],
    ids=["two answers", "empty lines", "bytes", "deep nesting", "a huge number", "garbage in front"],
)
def test_a_forged_answer_is_no_result(open_sandbox: Open, lines: str, wrong: str) -> None:
    """Whatever else comes out of the pipe ends the process."""
    sandbox = open_sandbox(FORGE)
    with pytest.raises(OracleError, match=wrong):
        sandbox.ask(lines)


def test_an_answer_to_another_request_is_no_result(open_sandbox: Open) -> None:
    """A line written ahead of time would be read as the answer to the next request."""
    script = """
        import os, json

        def start(settings):
            class Ahead:
                def __call__(self, value):
                    os.write(3, json.dumps({"id": 99, "result": "forged"}).encode() + b"\\n")
                    os._exit(0)
            return Ahead(), None
    """
    with pytest.raises(OracleError, match="says something else than what it is asked"):
        open_sandbox(script).ask(1)


def test_an_answer_too_many_ends_the_conversation(open_sandbox: Open) -> None:
    """A script may answer itself, early; the other answer then never passes for one to the next request."""
    sandbox = open_sandbox(FORGE)
    with pytest.raises(OracleError, match=r"says more than|says something else"):
        assert sandbox.ask('{"id": 1, "result": 7}\n') in (0, 7)
        sandbox.ask("")


@pytest.mark.parametrize("code", ["import os; os._exit(0)", "raise SystemExit(0)", "raise KeyboardInterrupt"])
def test_leaving_is_no_answer(open_sandbox: Open, code: str) -> None:
    """Exit status 0 does not make it one."""
    with pytest.raises(OracleError, match=r"ended without an answer|ran into a limit"):
        open_sandbox().ask(code)


def test_the_last_words_of_a_crash_are_told(open_sandbox: Open) -> None:
    """Standard error is kept, the end of it, for whoever has to find out why."""
    with pytest.raises(OracleError, match="its last words: out of luck"):
        open_sandbox().ask("import os, sys; print('out of luck', file=sys.stderr, flush=True); os._exit(3)")


def test_a_script_that_cannot_be_loaded_is_an_error(open_sandbox: Open) -> None:
    """The message has the exception; nothing was recorded from it."""
    with pytest.raises(OracleError, match="cannot be loaded: ModuleNotFoundError: No module named 'torch'"):
        open_sandbox("import torch")


# ── walls that cannot be built ───────────────────────────────────────────────────────────────────────────────────────

STARTER = """
import ctypes, importlib.util, json, os, struct, sys
from pathlib import Path

spec = importlib.util.spec_from_file_location("jail", {jail!r})
jail = importlib.util.module_from_spec(spec)
spec.loader.exec_module(jail)

def deny(number, first=None):
    # what a container's own filter does: this system call, with this first argument, does not exist
    load, equal, back = 0x20, 0x15, 0x06
    op = lambda code, value, true=0, false=0: struct.pack("=HBBI", code, true, false, value)
    argument = [] if first is None else [op(load, 16), op(equal, first, 0, 1)]
    body = [op(load, 0), op(equal, number, 0, len(argument) + 1), *argument, op(back, 0x50026), op(back, 0x7FFF0000)]
    program = b"".join(body)
    records = ctypes.create_string_buffer(program, len(program))
    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("records", ctypes.c_void_p))
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    value = Program(len(program) // 8, ctypes.cast(records, ctypes.c_void_p))
    assert libc.prctl(22, 2, ctypes.byref(value), 0, 0) == 0

{deny}
from bellwether.errors import OracleError
from bellwether.sandbox import Inside, Sandbox
try:
    with Sandbox(Inside("probe", Path({script!r}), {{"root": {root!r}}})) as sandbox:
        print("answer", sandbox.ask("result = 1"))
except OracleError as error:
    print("refused", error)
"""


def start_where(denied: str, world: Path) -> str:
    """Return what a process says that opens a sandbox after its system calls were restricted."""
    starter = STARTER.format(jail=str(JAIL), script=str(world / "script.py"), root=str(world), deny=denied)
    done = subprocess.run(
        [sys.executable, "-c", starter], capture_output=True, text=True, timeout=120, cwd=JAIL.parents[1]
    )
    assert done.stderr == ""
    return done.stdout.strip()


@X86_ONLY
@pytest.mark.parametrize(
    ("denied", "says"),
    [
        (
            "deny(444)",
            "refused probe is code of the vendor's, and it cannot be confined here: Unprotected: this kernel",
        ),
        ("deny(446)", "refused probe is code of the vendor's, and it cannot be confined here: Unprotected: Landlock"),
        ("deny(272)", "answer 1"),
        ("pass", "answer 1"),
    ],
    ids=["no Landlock", "Landlock does not restrict", "no namespaces", "everything"],
)
def test_vendor_code_does_not_run_without_the_mandatory_walls(world: Path, denied: str, says: str) -> None:
    """Landlock is mandatory. Namespaces are not: a container that forbids them still has the other walls."""
    assert start_where(denied, world).startswith(says)


@X86_ONLY
def test_vendor_code_does_not_run_without_limits(world: Path) -> None:
    """prlimit64 is how limits are set; refused, there are none."""
    assert "Unprotected: limits cannot be set" in start_where("deny(302)", world)


@X86_ONLY
def test_vendor_code_does_not_run_where_seccomp_filters_are_refused(world: Path) -> None:
    """A filter may refuse further filters: then nothing cuts the network for certain."""
    assert "Unprotected: seccomp" in start_where("deny(157, 22)", world)


def test_only_linux_can_confine(open_sandbox: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere vendor code does not run at all, and the message says what to do instead."""
    monkeypatch.setattr("bellwether.sandbox.sys.platform", "darwin")
    with pytest.raises(OracleError, match="only where it can be confined: on Linux") as error:
        open_sandbox()
    assert "dvc pull" in error.value.next_step


def test_an_interpreter_that_is_missing_is_an_error(world: Path) -> None:
    """An environment deleted by hand."""
    with pytest.raises(OracleError, match="cannot be started"):
        Sandbox(Inside("probe", world / "script.py", {}, python=world / "none" / "python"))


# ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_it_does_not_outlive_its_parent(world: Path) -> None:
    """The parent is killed while the script spins; no handler of the parent's runs then."""
    starter = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        from bellwether.sandbox import Inside, Limits, Sandbox
        sandbox = Sandbox(Inside("probe", Path({str(world / "script.py")!r}), {{}}), Limits(request_seconds=600))
        print(sandbox._process.pid, flush=True)
        sandbox.ask("while True: pass")
    """)
    with subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE, cwd=JAIL.parents[1]) as parent:
        inside = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and _runs(inside):
        time.sleep(0.05)
    assert not _runs(inside)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_closing_ends_the_process_and_its_pipes(open_sandbox: Open) -> None:
    """Nothing of it stays; closing again is no error."""
    sandbox = open_sandbox()
    sandbox.close()
    sandbox.close()
    assert sandbox._process.returncode == -signal.SIGKILL
    assert all(pipe.closed for pipe in sandbox._pipes())


def test_a_smaller_limit_of_the_parent_stays(world: Path) -> None:
    """Recording processes have a limit of their own, and what they start cannot raise it."""
    code = "import resource; result = resource.getrlimit(resource.RLIMIT_AS)"
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert before[1] >= 256
    starter = textwrap.dedent(f"""
        import resource
        from pathlib import Path
        from bellwether.sandbox import Inside, Sandbox
        resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))
        with Sandbox(Inside("probe", Path({str(world / "script.py")!r}), {{}})) as sandbox:
            print(sandbox.ask({code!r}))
    """)
    done = subprocess.run([sys.executable, "-c", starter], capture_output=True, text=True, cwd=JAIL.parents[1])
    assert done.stdout.strip() == f"[{1 << 31}, {1 << 31}]"
