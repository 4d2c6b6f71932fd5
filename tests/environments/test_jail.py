"""The list of system calls a sandboxed process has, for both architectures, by running the filter itself."""

from __future__ import annotations

import importlib.util
import os
import re
import struct
import sys
from pathlib import Path
from types import ModuleType

import pytest

from bellwether.sandbox import JAIL

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the filter is Linux's, and so are the flags")

ALLOW, KILL, EPERM = 0x7FFF0000, 0x80000000, 0x00050001
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NUMBERS = {
    # from the kernel's own tables: syscall_64.tbl, and asm-generic/unistd.h
    "x86_64": {"read": 0, "write": 1, "openat": 257, "fcntl": 72, "prlimit64": 302, "mmap": 9},
    "aarch64": {"read": 63, "write": 64, "openat": 56, "fcntl": 25, "prlimit64": 261, "mmap": 222},
}
FORBIDDEN = {
    "x86_64": {
        "socket": 41, "connect": 42, "accept": 43, "sendto": 44, "bind": 49, "socketpair": 53, "clone": 56, "fork": 57,
        "vfork": 58, "execve": 59, "kill": 62, "ptrace": 101, "setuid": 105, "mount": 165, "tgkill": 234,
        "unshare": 272, "prctl": 157, "seccomp": 317, "memfd_create": 319, "bpf": 321, "execveat": 322,
        "process_vm_writev": 311, "io_uring_setup": 425, "clone3": 435, "openat2": 437, "pidfd_open": 434,
        "creat": 85, "rename": 82, "unlink": 87, "truncate": 76, "chmod": 90, "ioctl": 16, "sendmsg": 46,
    },
    "aarch64": {
        "socket": 198, "connect": 203, "sendto": 206, "clone": 220, "execve": 221, "kill": 129, "ptrace": 117,
        "mount": 40, "unshare": 97, "prctl": 167, "seccomp": 277, "memfd_create": 279, "bpf": 280, "execveat": 281,
        "io_uring_setup": 425, "clone3": 435, "openat2": 437, "truncate": 45, "unlinkat": 35, "ioctl": 29,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def jail() -> ModuleType:
    """The script that runs inside, loaded by its path as the interpreter loads it."""
    spec = importlib.util.spec_from_file_location("jail", JAIL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def decide(program: bytes, arch: int, number: int, *arguments: int) -> int:
    """Return what a filter says of a system call: the classic BPF machine, as far as the filter uses it."""
    data = struct.pack("=iIQ6Q", number, arch, 0, *(*arguments, *[0] * (6 - len(arguments))))
    steps = list(struct.iter_unpack("=HBBI", program))
    place = accumulator = 0
    while True:
        code, true, false, value = steps[place]
        place += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif code == 0x54:
            accumulator &= value
        elif code == 0x15:
            place += true if accumulator == value else false
        elif code == 0x35:
            place += true if accumulator >= value else false
        else:
            assert code == 0x06
            return value


@pytest.mark.parametrize("machine", ARCH)
def test_what_reads_and_computes_is_allowed(jail: ModuleType, machine: str) -> None:
    """Reading, writing to descriptors that are open, memory: without them nothing runs."""
    program = jail.seccomp_program(machine)
    for name in ("read", "write", "mmap"):
        assert decide(program, ARCH[machine], NUMBERS[machine][name]) == ALLOW, name


@pytest.mark.parametrize("machine", ARCH)
def test_what_reaches_beyond_the_process_is_refused(jail: ModuleType, machine: str) -> None:
    """Networks, processes, signals, other memories, changes to files, and ways around the filter."""
    program = jail.seccomp_program(machine)
    for name, number in FORBIDDEN[machine].items():
        assert decide(program, ARCH[machine], number) == EPERM, name


@pytest.mark.parametrize("machine", ARCH)
def test_files_are_opened_for_reading_only(jail: ModuleType, machine: str) -> None:
    """The access mode and the flags that create or truncate decide; flags beside them do not matter."""
    program = jail.seccomp_program(machine)

    def opening(flags: int) -> int:
        return decide(program, ARCH[machine], NUMBERS[machine]["openat"], 0, 0, flags)

    assert {opening(flags) for flags in (os.O_RDONLY, os.O_CLOEXEC, os.O_DIRECTORY, os.O_PATH, os.O_NOFOLLOW)} == {
        ALLOW
    }
    writing = (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_RDONLY | os.O_CREAT, os.O_RDONLY | os.O_TRUNC)
    assert {opening(flags) for flags in (*writing, os.O_TMPFILE | os.O_RDONLY, 3)} == {EPERM}


@pytest.mark.parametrize("machine", ARCH)
def test_a_descriptor_cannot_be_made_to_send_signals(jail: ModuleType, machine: str) -> None:
    """fcntl: F_DUPFD 0, F_GETFD 1, F_SETFD 2, F_GETFL 3 and F_DUPFD_CLOEXEC 1030 stay; F_SETFL 4, F_SETOWN 8 do not."""
    program = jail.seccomp_program(machine)
    answers = {
        command: decide(program, ARCH[machine], NUMBERS[machine]["fcntl"], 0, command) for command in range(2000)
    }
    assert {command for command, answer in answers.items() if answer == ALLOW} == {0, 1, 2, 3, 1030}


@pytest.mark.parametrize("machine", ARCH)
def test_limits_are_read_and_never_set(jail: ModuleType, machine: str) -> None:
    """prlimit64's third argument points to the new limit; either half of the pointer may be other than zero."""
    program = jail.seccomp_program(machine)
    number = NUMBERS[machine]["prlimit64"]
    assert decide(program, ARCH[machine], number, 0, 9, 0, 0x7FFF0000) == ALLOW
    assert decide(program, ARCH[machine], number, 0, 9, 0x7FFF0000) == EPERM
    assert decide(program, ARCH[machine], number, 0, 9, 0x7FFF << 32) == EPERM


@pytest.mark.parametrize("machine", ARCH)
def test_without_a_network_only_unix_sockets_are_opened(jail: ModuleType, machine: str) -> None:
    """Every other family is refused; io_uring, which opens sockets without this call, and x86_64's second set of
    numbers too; all else is allowed."""
    program, arch, forbidden = jail.no_network_program(machine), ARCH[machine], FORBIDDEN[machine]
    unix, inet, inet6, netlink, packet = 1, 2, 10, 16, 17
    assert decide(program, arch, forbidden["socket"], unix) == ALLOW
    for family in (inet, inet6, netlink, packet):
        assert decide(program, arch, forbidden["socket"], family) == EPERM, family
    assert decide(program, arch, forbidden["io_uring_setup"]) == EPERM
    assert decide(program, arch, 0x40000000 + forbidden["socket"], unix) == EPERM
    for name, number in {**forbidden, **NUMBERS[machine]}.items():
        if name not in ("socket", "io_uring_setup"):
            assert decide(program, arch, number, inet) == ALLOW, name
    other = next(value for name, value in ARCH.items() if name != machine)
    assert decide(program, other, forbidden["socket"], unix) == KILL


@pytest.mark.parametrize("machine", ARCH)
def test_another_architectures_numbers_end_the_process(jail: ModuleType, machine: str) -> None:
    """A 64-bit kernel also takes the 32-bit calls, by other numbers; so does x32, which is marked in the number."""
    program = jail.seccomp_program(machine)
    assert decide(program, 0x40000003, 3) == KILL  # i386, where 3 is read
    assert decide(program, ARCH[machine], 0x40000000 | 41) == EPERM


@pytest.mark.parametrize(
    ("machine", "header"),
    [("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", "/usr/include/asm-generic/unistd.h")],
)
def test_numbers_are_the_kernels(jail: ModuleType, machine: str, header: str) -> None:
    """Every number of the table is the one the kernel's headers have for its name."""
    if not Path(header).is_file():
        pytest.skip("the kernel's headers are not installed")
    text = Path(header).read_text()
    known = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    known |= {"newfstatat": known.get("newfstatat", known.get("fstatat"))}
    column = list(ARCH).index(machine)
    table = {**jail.ALLOWED, **jail.OPEN, "fcntl": jail.FCNTL, "prlimit64": jail.PRLIMIT}
    ours = {name: numbers[column] for name, numbers in table.items() if numbers[column] is not None}
    assert ours == {name: known[name] for name in ours}


def test_an_unknown_architecture_is_refused(jail: ModuleType) -> None:
    """Without its numbers there is no filter, and without a filter nothing runs."""
    with pytest.raises(jail.Unprotected, match="riscv64"):
        jail.seccomp_program("riscv64")
    with pytest.raises(jail.Unprotected, match="riscv64"):
        jail.no_network_program("riscv64")
