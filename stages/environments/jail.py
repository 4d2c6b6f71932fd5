"""Runs inside the sandbox: give up every right, load one script, answer its requests. Standard library only.

Started by `bellwether.sandbox` as `python -I -S -B jail.py`, with pipes for standard input, output and error and no
other descriptor. The first input line is the configuration; every further line is a request, and each gets one line
back. Nothing of a vendor's, and no package, is imported before the walls stand:

| wall | what it stops | when it is missing |
|---|---|---|
| seccomp | sockets, new processes and threads, exec, signals, ptrace, mounts, every change to a file | refuse to run |
| Landlock | reading anything but the interpreter, the environment and the listed inputs; every write | refuse to run |
| rlimits | address space, processor time, file size 0, no core dump | refuse to run |
| namespaces | a user without capabilities, a network without interfaces | go on: seccomp already cuts both |

None of them needs root, and a container that forbids user namespaces still has the first three.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import resource
import signal
import socket
import struct
import sys
import sysconfig
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)


class Unprotected(Exception):
    """Raised when a mandatory wall cannot be built, or does not hold."""


# ── seccomp: a list of what is allowed, everything else is refused ───────────────────────────────────────────────────

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOWED = {
    # name: (x86_64, aarch64); None where the architecture has no such call
    "read": (0, 63),
    "write": (1, 64),
    "readv": (19, 65),
    "writev": (20, 66),
    "pread64": (17, 67),
    "close": (3, 57),
    "lseek": (8, 62),
    "dup": (32, 23),
    "stat": (4, None),
    "fstat": (5, 80),
    "lstat": (6, None),
    "newfstatat": (262, 79),
    "statx": (332, 291),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "getdents64": (217, 61),
    "getcwd": (79, 17),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132),
    "restart_syscall": (219, 128),
    "poll": (7, None),
    "ppoll": (271, 73),
    "select": (23, None),
    "pselect6": (270, 72),
    "futex": (202, 98),
    "set_robust_list": (273, 99),
    "set_tid_address": (218, 96),
    "rseq": (334, 293),
    "membarrier": (324, 283),
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "gettimeofday": (96, 169),
    "getrandom": (318, 278),
    "getpid": (39, 172),
    "getppid": (110, 173),
    "gettid": (186, 178),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "getrusage": (98, 165),
    "getrlimit": (97, 163),
    "sysinfo": (99, 179),
    "uname": (63, 160),
    "exit": (60, 93),
    "exit_group": (231, 94),
}
OPEN = {"open": (2, None, 1), "openat": (257, 56, 2)}
"""Name → numbers, and which argument holds the flags. openat2 hides its flags behind a pointer and is not allowed."""
FCNTL = (72, 25)
FCNTL_COMMANDS = (0, 1, 2, 3, 1030)
"""Duplicate, and read or set descriptor flags. F_SETOWN and F_SETFL would let a pipe send a signal to the parent."""
PRLIMIT = (302, 261)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | 0o20000000  # the last is O_TMPFILE without O_DIRECTORY

SOCKET, IO_URING_SETUP = (41, 198), (425, 425)
X32_NUMBERS = 0x40000000
"""x86_64 has a second set of numbers from here on, for the same calls."""

LOAD, EQUAL, AT_LEAST, AND, RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
RET_ALLOW, RET_KILL = 0x7FFF0000, 0x80000000
RET_EPERM = 0x00050000 | errno.EPERM


def _op(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, true, false, value)


def _argument(index: int, high: bool = False) -> bytes:
    return _op(LOAD, 16 + 8 * index + (4 if high else 0))


def seccomp_program(machine: str) -> bytes:
    """Return the filter as struct sock_filter records: allow what is listed, refuse the rest with EPERM.

    Raises:
        Unprotected: the architecture's call numbers are not known here.
    """
    if machine not in AUDIT_ARCH or sys.byteorder != "little":
        raise Unprotected(f"no list of system calls for {machine}")
    column = list(AUDIT_ARCH).index(machine)

    def when(number: int | None, body: list[bytes]) -> list[bytes]:
        return [] if number is None else [_op(EQUAL, number, 0, len(body)), *body]

    allow, refuse = _op(RETURN, RET_ALLOW), _op(RETURN, RET_EPERM)
    program = [_op(LOAD, 4), _op(EQUAL, AUDIT_ARCH[machine], 1, 0), _op(RETURN, RET_KILL), _op(LOAD, 0)]
    for numbers in ALLOWED.values():
        program += when(numbers[column], [allow])
    for *numbers, flags in OPEN.values():
        only_reads = [_argument(flags), _op(AND, WRITING), _op(EQUAL, 0, 0, 1), allow, refuse]
        program += when(numbers[column], only_reads)
    commands = [step for command in FCNTL_COMMANDS for step in (_op(EQUAL, command, 0, 1), allow)]
    program += when(FCNTL[column], [_argument(1), *commands, refuse])
    no_new_limit = [_argument(2), _op(EQUAL, 0, 0, 3), _argument(2, high=True), _op(EQUAL, 0, 0, 1), allow, refuse]
    program += when(PRLIMIT[column], no_new_limit)
    return b"".join([*program, refuse])


def no_network_program(machine: str) -> bytes:
    """Return a filter that allows everything but sockets of other families than Unix, for code that is no stranger's.

    Raises:
        Unprotected: the architecture's call numbers are not known here.
    """
    if machine not in AUDIT_ARCH or sys.byteorder != "little":
        raise Unprotected(f"no list of system calls for {machine}")
    column = list(AUDIT_ARCH).index(machine)
    allow, refuse = _op(RETURN, RET_ALLOW), _op(RETURN, RET_EPERM)
    return b"".join(
        [
            *(_op(LOAD, 4), _op(EQUAL, AUDIT_ARCH[machine], 1, 0), _op(RETURN, RET_KILL), _op(LOAD, 0)),
            *(_op(AT_LEAST, X32_NUMBERS, 0, 1), refuse),
            *(_op(EQUAL, IO_URING_SETUP[column], 0, 1), refuse),
            *(_op(EQUAL, SOCKET[column], 1, 0), allow, _argument(0), _op(EQUAL, socket.AF_UNIX, 0, 1), allow, refuse),
        ]
    )


def seccomp(program: bytes) -> None:
    """Confine system calls by a filter. Raises Unprotected."""
    records = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("records", ctypes.c_void_p))

    value = Program(len(program) // 8, ctypes.cast(records, ctypes.c_void_p))
    _need(libc.prctl(22, 2, ctypes.byref(value), 0, 0), "seccomp")  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


# ── Landlock: what of the file system can be seen ────────────────────────────────────────────────────────────────────

READ_FILE, READ_DIR = 1 << 2, 1 << 3
FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Landlock version → the file system rights it can take away; a version in between knows those of the one before."""
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446


def landlock(files: list[str], folders: list[str], listed: list[str]) -> None:
    """Leave nothing to be read but `files`, everything below `folders`, and the names inside `listed`.

    Raises:
        Unprotected: the kernel has no Landlock, or it is switched off.
    """
    version = libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if version < 1:
        raise Unprotected("this kernel has no Landlock, or does not offer it here")
    rights = FILE_RIGHTS[max(known for known in FILE_RIGHTS if known <= version)]
    network = 3 if version >= 4 else 0  # binding and connecting TCP
    scoped = 3 if version >= 6 else 0  # abstract sockets and signals beyond this process
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = libc.syscall(
        CREATE_RULESET, struct.pack("=QQQ", rights, network, scoped)[:size], ctypes.c_size_t(size), 0
    )
    _need(ruleset, "Landlock")
    rules = [(path, READ_FILE) for path in files]
    rules += [(path, READ_FILE | READ_DIR) for path in folders] + [(path, READ_DIR) for path in listed]
    for path, access in rules:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", access, handle)
        _need(libc.syscall(ADD_RULE, ruleset, 1, rule, 0), f"Landlock for {path}")
        os.close(handle)
    _need(libc.syscall(RESTRICT_SELF, ruleset, 0), "Landlock")
    os.close(ruleset)


def interpreter_folders() -> list[str]:
    """Return where Python and the libraries it loads lie, as far as they exist."""
    wanted = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), f"{sys.base_prefix}/lib"]
    wanted += ["/lib", "/lib64", "/usr/lib", "/usr/lib64"]
    return sorted({path for path in wanted if Path(path).is_dir()})


# ── the smaller walls ────────────────────────────────────────────────────────────────────────────────────────────────


def namespaces() -> None:
    """A user of its own, and a network without interfaces, where the system lets us have them."""
    new_user, new_ipc, new_net = 0x10000000, 0x08000000, 0x40000000
    libc.unshare(new_user | new_ipc | new_net)


def limits(memory_bytes: int, cpu_seconds: int) -> None:
    """Bound what one process can take. Raises Unprotected."""
    values = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_CPU: cpu_seconds,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_NOFILE: 256,
    }
    try:
        for name, value in values.items():
            most = resource.getrlimit(name)[1]  # a recording process has limits of its own
            value = value if most == resource.RLIM_INFINITY else min(value, most)
            resource.setrlimit(name, (value, value))
    except (OSError, ValueError) as error:
        raise Unprotected(f"limits cannot be set: {error}") from None


def drop_capabilities() -> None:
    """Keep none, in no set. Raises Unprotected."""
    header, none = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    _need(libc.capset(header, none), "dropping capabilities")


def hold() -> None:
    """Try the walls before anyone else does. Raises Unprotected when one of them lets something through."""
    attempts = {
        "a socket can be opened": socket.socket,
        "a process can be started": os.fork,
        "the root folder can be listed": lambda: list(Path("/").iterdir()),
        "a file can be written": lambda: os.open("/tmp/bellwether-sandbox", os.O_WRONLY | os.O_CREAT),
    }
    parent = os.getpid()
    for leak, attempt in attempts.items():
        try:
            attempt()
        except OSError:
            continue
        if os.getpid() != parent:
            os._exit(1)
        raise Unprotected(leak)


def confine(config: dict) -> None:
    """Build all walls, in the order in which each can still be built. Raises Unprotected."""
    folders = [*interpreter_folders(), *config["folders"]]
    files = [*config["files"], *(path for path in ("/etc/ld.so.cache",) if Path(path).is_file())]
    _need(libc.prctl(38, 1, 0, 0, 0), "no new privileges")  # PR_SET_NO_NEW_PRIVS
    namespaces()
    limits(config["memory_bytes"], config["cpu_seconds"])
    drop_capabilities()
    landlock(files, folders, config["listed"])
    die_with_parent()  # again: the kernel may forget it when credentials change
    seccomp(seccomp_program(platform.machine()))
    hold()


def die_with_parent() -> None:
    """Never outlive the process that started this one."""
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != int(sys.argv[1]):
        os._exit(1)


def _need(status: int, what: str) -> None:
    if status < 0:
        raise Unprotected(f"{what}: {os.strerror(ctypes.get_errno())}")


# ── the conversation ─────────────────────────────────────────────────────────────────────────────────────────────────


def serve(answers: int) -> None:
    """Confine this process, load the script, and answer request after request until the parent closes the pipe."""

    def send(value: dict) -> None:
        line = json.dumps(value).encode() + b"\n"
        while line:
            line = line[os.write(answers, line) :]

    config = json.loads(sys.stdin.buffer.readline())
    code = compile(Path(config["script"]).read_bytes(), config["script"], "exec")
    try:
        confine(config)
    except (Unprotected, OSError) as error:
        return send({"unprotected": _reason(error)})
    sys.path += config["packages"]
    try:
        names = {"__name__": "inside"}
        exec(code, names)
        answer, facts = names["start"](config["settings"])
    except BaseException as error:
        return send({"failed": _reason(error)})
    send({"started": facts})
    for line in sys.stdin.buffer:
        request = json.loads(line)
        try:
            send({"id": request["id"], "result": answer(request["value"])})
        except Exception as error:
            send({"id": request["id"], "failed" if provoked(error) else "refused": _reason(error)})
        except BaseException as error:
            return send({"id": request["id"], "failed": _reason(error)})


def provoked(error: BaseException | None) -> bool:
    """Return whether the walls have a part in an error, or in one it was raised over. Then it is no answer."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        if isinstance(error, MemoryError | OSError | ImportError) or "start new thread" in str(error):
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__
    return False


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:2000]


if __name__ == "__main__":
    die_with_parent()
    answers = os.dup(1)  # print() of the vendor's goes to standard error
    os.dup2(2, 1)
    serve(answers)
