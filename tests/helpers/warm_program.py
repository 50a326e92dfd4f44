"""A process that has imported the program and forks for each call of a test, instead of starting Python again.

Importing the program takes half a second of CPU time, forking a process that has imported it takes milliseconds. It is
the same program, with its own arguments, folder, environment, files and terminal, in a child of the process that asks:
to be waited for, stopped and killed as any other. What start-up itself is the subject of (imports, closed streams,
limits of memory, locales) starts Python: `subprocess` is there for it, and `WarmPopen` falls back to that by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

from tests.helpers.paths import ROOT
from tests.helpers.torch_zygote import run_and_leave
from torchprof_tui.trace.loading import worker_process

_PROGRAM = [sys.executable, "-m", "torchprof_tui"]
_WORKER = [sys.executable, "-I", "-c", worker_process._START_CODE]
_READ_AT_START = ("LANG", "LC_", "LD_", "PYTHON", "TEXTUAL", "TZ")
"""Beginnings of the names of variables that Python, libraries or imported modules read once."""

_ENVIRONMENT = dict(os.environ)
_SET_CHILD_SUBREAPER = 36  # of prctl, on Linux
_MAX_REQUEST_BYTES = 200_000


def fork_program(
    command: Sequence[Any],
    folder: Any,
    environment: Mapping[str, str] | None,
    files: Mapping[int, int],
    has_terminal: bool = False,
) -> int | None:
    """Start the program, or its worker, and return its pid; None for what needs a start of Python.

    `files` has the descriptors to inherit by the numbers that they get. With `has_terminal`, 1 is its terminal.
    """
    words, variables = [os.fspath(word) for word in command], dict(os.environ if environment is None else environment)
    is_worker = words[: len(_WORKER)] == _WORKER
    if sys.platform != "linux" or not (is_worker or words[: len(_PROGRAM)] == _PROGRAM):
        return None
    if "--color" in words or any(  # which sets a variable that textual reads once
        variables.get(name) != _ENVIRONMENT.get(name)
        for name in variables.keys() | _ENVIRONMENT.keys()
        if name.startswith(_READ_AT_START)
    ):
        return None
    request = {
        "is_worker": is_worker,
        "words": words[len(_WORKER if is_worker else _PROGRAM) :],
        "folder": os.fspath(os.getcwd() if folder is None else folder),
        "environment": variables,
        "numbers": list(files),
        "has_terminal": has_terminal,
    }
    return _start_server().fork(json.dumps(request).encode(), list(files.values()))


class WarmPopen(subprocess.Popen[Any]):
    """A `Popen` whose process is forked by `fork_program` where that is possible."""

    def _execute_child(self, *arguments: Any) -> None:
        command, executable, preexec, _, passed, folder, environment, _, _, shell, *rest = arguments
        stdin, _, _, stdout, _, stderr, _, *identity = rest  # of `identity`, the last but for 3.10 is a process group
        pid = None
        if not shell and executable in (None, command[0]) and preexec is None and not _changes(identity):
            given = {0: stdin, 1: stdout, 2: stderr}
            files = {number: number if file == -1 else file for number, file in given.items()}
            pid = fork_program(command, folder, environment, {**files, **dict(zip(passed, passed, strict=True))})
        if pid is None:
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        self.pid, self._child_created = pid, True
        self._close_pipe_fds(*rest[:6])  # type: ignore[attr-defined]


def fork_workers() -> None:
    """Let the processes that read traces for apps and commands of this process be forked, too."""
    worker_process.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": WarmPopen})  # type: ignore[assignment]


def _changes(identity: Sequence[Any]) -> bool:
    """Whether a process has another user, mask of files, session or group than its parent."""
    return any(value not in (None, -1, False) for value in identity)


class _Server:
    """The other end of `_serve`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.helpers.warm_program", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
                env={**_ENVIRONMENT, "OPENBLAS_NUM_THREADS": "1"},  # a process with threads is not to be forked
            )
        self._prctl = ctypes.CDLL(None).prctl

    def fork(self, request: bytes, files: list[int]) -> int:
        """Have a child forked, and become its parent: the process between ends, and children go to the next reaper."""
        with self._lock:
            self._prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._socket, [request], files)
                answer = self._socket.recv(100)
            finally:
                self._prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        assert answer, "the process that forks has ended"
        return int(answer)


@cache
def _start_server() -> _Server:
    return _Server()


def _serve(requests: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork a child for each request and answer with its pid, until the tests end. Returns in the children alone."""
    while True:
        message, files, _, _ = socket.recv_fds(requests, _MAX_REQUEST_BYTES, 16)
        if not message:
            os._exit(0)
        read, write = os.pipe()
        between = os.fork()
        if between == 0:
            child = os.fork()
            if child == 0:
                return json.loads(message), files
            os.write(write, str(child).encode())
            os._exit(0)
        os.waitpid(between, 0)  # first: the child has its new parent then
        requests.send(os.read(read, 100))
        for file in (read, write, *files):
            os.close(file)


def _set_up(request: dict[str, Any], files: list[int]) -> None:
    """Set up this process as a start does: files, terminal, folder, environment, arguments."""
    numbers = request["numbers"]
    above = [fcntl.fcntl(file, fcntl.F_DUPFD, 100) for file in files]
    for file, number in zip(above, numbers, strict=True):
        os.dup2(file, number)
    for file in set(map(int, os.listdir("/proc/self/fd"))).difference(numbers):
        with contextlib.suppress(OSError):  # that of the folder
            os.close(file)
    if request["has_terminal"]:
        os.setsid()
        fcntl.ioctl(1, termios.TIOCSCTTY, 0)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        how: dict[str, Any] = {"buffering": 1, "errors": "backslashreplace"} if number == 2 else {}
        stream = open(number, "w" if number else "r", encoding="utf-8", closefd=False, **how)  # noqa: SIM115  (for good)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if request["is_worker"]:
        sys.path[:] = json.loads(request["words"].pop(0))
        sys.argv[:] = ["-c", *request["words"]]
    else:
        sys.path[0] = request["folder"]
        sys.argv[:] = [str(ROOT / "tui/torchprof_tui/__main__.py"), *request["words"]]


def main() -> None:
    """Import the program, serve, and run what a request asks for in the child that was forked for it."""
    from torchprof_tui.cli import main as run_program
    from torchprof_tui.commands.common.parsers import COMMANDS, import_command
    from torchprof_tui.trace.loading.worker_main import main as run_worker

    for name in COMMANDS:
        import_command(name)
    for name in ("rich.table", "torchprof_tui.app", "torchprof_tui.ui.explorer.explorer_screen"):
        importlib.import_module(name)
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()  # otherwise the garbage collector of each child would traverse all modules
    request, files = _serve(socket.socket(fileno=int(sys.argv[1])))
    _set_up(request, files)
    run_and_leave(run_worker if request["is_worker"] else lambda: sys.exit(run_program()))


if __name__ == "__main__":
    main()
