"""List the user's processes on this host that use torch: their rank, command, and what could record them.

Linux only: all is read from /proc. A process of another user is never listed.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from typing import Any, NamedTuple

KINETO_VARIABLE = "KINETO_USE_DAEMON"
UNLOAD_VARIABLE = "TEARDOWN_CUPTI"  # 1: Kineto unloads CUPTI after a recording
SOCKET_DIR_VARIABLE = "KINETO_IPC_SOCKET_DIR"
KEPT_VARIABLES = frozenset(
    {KINETO_VARIABLE, SOCKET_DIR_VARIABLE, UNLOAD_VARIABLE}
    | {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID"}
    | {"SLURM_PROCID", "SLURM_NTASKS", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE"}
    | {"VLLM_TORCH_PROFILER_DIR", "SGLANG_TORCH_PROFILER_DIR", "PATH", "XDG_CACHE_HOME"}
    | {"TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"}
    | {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}
)
"""The variables of a process that are read: others may be secrets."""

CLIENT_SOCKET = "dynoconfigclient"  # beginning of the names of the sockets of Kineto's client; a random id follows
SCRATCH_PREFIX = "torchprof-attach-"
MARKER_SUFFIX = ".installed"

LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed")
HELPERS = ("torch/_inductor/compile_worker", "torch._inductor.compile_worker", "multiprocessing.resource_tracker")

VLLM = ("vllm.entrypoints", "vllm serve")
SGLANG = ("sglang.launch_server", "sglang serve")

ROOT = "/proc"


class Process(NamedTuple):
    """One process. `start`: clock ticks after boot, which with `pid` identify it. `socket`: of Kineto's client, or "".

    `socket_dir`: where Kineto's client looks for the daemon; "" for the abstract name. `launcher`: it starts ranks, and
    is none itself. `python`: (3, 14) where it is known.
    """

    pid: int
    start: int
    parent: int
    command: list[str]
    environment: dict[str, str]
    socket: str
    socket_dir: str
    launcher: bool
    marker: bool
    python: tuple[int, int] | None
    problem: str

    def number(self, *names: str) -> int | None:
        """Return the first of some environment variables that is a number."""
        values = [self.environment.get(name, "") for name in names]
        return next((int(value) for value in values if re.fullmatch("[0-9]{1,9}", value)), None)

    @property
    def rank(self) -> int | None:
        return self.number("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")

    @property
    def world_size(self) -> int | None:
        return self.number("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")

    @property
    def job(self) -> str:
        """Name the job that the process is a rank of: Slurm's number, or where its ranks meet; else its pid."""
        slurm = self.environment.get("SLURM_JOB_ID")
        if slurm:
            return f"slurm {slurm}"
        if self.rank is not None and "MASTER_PORT" in self.environment:
            return f"{self.environment.get('MASTER_ADDR', 'localhost')}:{self.environment['MASTER_PORT']}"
        return f"pid {self.pid}"

    @property
    def server(self) -> str:
        """Name the inference server: "vllm", "sglang" or ""."""
        line = " ".join(self.command)
        if any(word in line for word in VLLM):
            return "vllm"
        return "sglang" if any(word in line for word in SGLANG) else ""


def scratch_folder() -> str:
    """Name the private folder of this user for markers and requests; `make_private` creates it."""
    return f"/tmp/{SCRATCH_PREFIX}{os.geteuid()}"  # not TMPDIR, which the job may not share


def make_private(folder: str) -> str:
    """Create a folder with mode 0700. Raises OSError (one line) where it is not the user's own, or others can write."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    return check_private(folder)


def check_private(folder: str) -> str:
    """Return a folder that only this user can write to. Raises OSError (one line) for any other."""
    state = os.lstat(folder)
    if state.st_uid != os.geteuid() or state.st_mode & 0o022 or state.st_mode & 0o170000 != 0o040000:
        raise OSError(f"{folder}: not a folder of your own that only you can write to (chmod 700); not used")
    return folder


def list_processes() -> list[Process]:
    """List the processes that can be recorded, or could be if something was set at their start."""
    sockets = read_client_sockets()
    found: list[Process] = []
    for name in os.listdir(ROOT):
        if name.isdigit() and int(name) != os.getpid():
            try:
                process = read_process(int(name), sockets)
            except (OSError, ValueError, IndexError):  # it has ended, or is none of ours
                continue
            if process is not None:
                found.append(process)
    forked = {(each.pid, *each.command, socket) for each in found for socket in ("", each.socket)}
    kept = [each for each in found if (each.parent, *each.command, each.socket) not in forked]
    parents = {each.parent for each in kept if each.rank is not None}
    known = [each._replace(launcher=each.launcher or (each.pid in parents and each.rank is None)) for each in kept]
    return sorted(known, key=lambda each: (each.job, -1 if each.rank is None else each.rank, each.pid))


def read_process(pid: int, sockets: dict[int, str] | None = None) -> Process | None:
    """Read a process; None where it is another user's or does not use torch. Raises OSError where it has ended."""
    if os.stat(f"{ROOT}/{pid}").st_uid != os.geteuid():
        return None
    command = _read(pid, "cmdline").decode(errors="replace").rstrip("\0").split("\0")
    line = " ".join(command)
    if not line or any(word in line for word in HELPERS):
        return None
    start, parent = read_start(pid)
    program = os.path.basename(os.readlink(f"{ROOT}/{pid}/exe"))
    text = _read(pid, "environ").decode(errors="replace")
    environment = dict(pair.split("=", 1) for pair in text.split("\0") if pair.partition("=")[0] in KEPT_VARIABLES)
    maps = _read(pid, "maps") if program.startswith(("python", "pypy")) or KINETO_VARIABLE in environment else b""
    if b"libtorch" not in maps and not any(word in line for word in VLLM + SGLANG):
        return None
    clients = read_client_sockets() if sockets is None else sockets
    held = next((clients[inode] for inode in sorted(_list_socket_inodes(pid)) if inode in clients), "")
    words = command[1:4]
    is_launcher = "RANK" not in words and any(os.path.basename(word) in LAUNCHERS for word in words)
    version = re.search(rb"libpython3\.([0-9]+)|python3\.([0-9]+)/", maps) or re.search(
        rb"python3\.([0-9]+)()", program.encode()
    )
    return Process(
        pid,
        start,
        parent,
        command,
        environment,
        held,
        environment.get(SOCKET_DIR_VARIABLE, ""),
        is_launcher,
        has_marker(pid, start),
        (3, int(version[1] or version[2])) if version else None,
        _find_problem(pid),
    )


def read_start(pid: int) -> tuple[int, int]:
    """Read when a process started (clock ticks after boot), and its parent. Raises OSError where it has ended."""
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    if fields[0] in (b"Z", b"X"):
        raise ProcessLookupError(pid)
    return int(fields[19]), int(fields[1])


def is_running(pid: int, start: int) -> bool:
    """Tell whether a process still runs, and is not another one with its number."""
    try:
        return read_start(pid)[0] == start
    except (OSError, ValueError, IndexError):
        return False


def has_marker(pid: int, start: int) -> bool:
    """Tell whether a process handles SIGUSR2 for us: it said so, and the kernel says that it catches the signal."""
    path = f"{scratch_folder()}/{pid}-{start}{MARKER_SUFFIX}"
    try:
        check_private(scratch_folder())
        caught = re.search(rb"SigCgt:\s*([0-9a-f]+)", _read(pid, "status"))
        is_ours = os.lstat(path).st_uid == os.geteuid()
    except OSError:
        return False
    return bool(is_ours and caught and int(caught[1], 16) >> (signal.SIGUSR2 - 1) & 1)


def read_client_sockets() -> dict[int, str]:
    """Read the sockets of Kineto's clients of this host, by inode."""
    return {inode: name for inode, name in read_sockets() if CLIENT_SOCKET in name}


def read_sockets() -> list[tuple[int, str]]:
    """Read (inode, name) of the Unix sockets with a name; an abstract name begins with @."""
    with open(f"{ROOT}/net/unix", encoding="utf-8", errors="replace") as file:
        rows = [line.split(None, 7) for line in file.read().splitlines()[1:]]
    return [(int(row[6]), row[7].rstrip("@")) for row in rows if len(row) == 8]


def find_holder(name: str) -> tuple[int, str]:
    """Find the process that holds a socket: (pid, command); (0, "") where it is another user's."""
    inodes = {inode for inode, each in read_sockets() if each == name}
    for entry in os.listdir(ROOT):
        if entry.isdigit() and inodes & _list_socket_inodes(int(entry)):
            line = _read(int(entry), "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
            return int(entry), line
    return 0, ""


def _list_socket_inodes(pid: int) -> set[int]:
    folder, inodes = f"{ROOT}/{pid}/fd", set()
    try:
        for name in os.listdir(folder):
            target = os.readlink(f"{folder}/{name}")
            if target.startswith("socket:["):
                inodes.add(int(target[8:-1]))
    except OSError:
        pass
    return inodes


def _find_problem(pid: int) -> str:
    """Say why a process cannot be reached from here although it is the user's; "" where it can."""
    with contextlib.suppress(OSError):
        for kind, meaning in (("net", "network"), ("mnt", "file system")):
            if os.readlink(f"{ROOT}/{pid}/ns/{kind}") != os.readlink(f"{ROOT}/self/ns/{kind}"):
                return f"it has a {meaning} of its own (a container): run attach inside of it"
    return ""


def _read(pid: int, name: str) -> bytes:
    with open(f"{ROOT}/{pid}/{name}", "rb") as file:
        return file.read()


def describe(process: Process) -> dict[str, Any]:
    """Describe a process for a message."""
    names = ("pid", "start", "rank", "world_size", "job", "command", "launcher")
    return {**{name: getattr(process, name) for name in names}, "command": " ".join(process.command)}
