"""A process that has imported the program and forks for each call of a test, instead of starting Python again.

Importing the program takes half a second of CPU time, forking a process that has imported it takes milliseconds. It is
the same program, with its own arguments, folder, environment, files and terminal, in a child of the process that asks:
to be waited for, stopped and killed as any other. What start-up itself is the subject of (imports, closed streams,
limits of memory, locales) starts Python: `subprocess` is there for it, and `WarmPopen` falls back to that by itself.

Scripts that import torch, which takes some seconds, are forked by `WarmTorchPopen` from another process, which has
imported torch and nothing of the program.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.helpers.torch_zygote import import_torch, run_and_leave

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parents[2]  # not from paths.py, which imports the program
_STARTS = {"program": [sys.executable, "-m", "torchprof_tui"]}  # how the words of what can be forked begin, by kind
_READ_AT_START = ("LANG", "LC_", "LD_", "PYTHON", "TEXTUAL", "TZ")
"""Beginnings of the names of variables that Python, libraries or imported modules read once."""

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # see conftest.py
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
    words = [os.fspath(word) for word in command]
    for kind, start in _STARTS.items():
        if words[: len(start)] == start and "--color" not in words:  # which sets a variable that textual reads once
            return _fork(kind, words[len(start) :], folder, environment, files, has_terminal)
    return None


def _fork(
    kind: str,
    words: list[str],
    folder: Any,
    environment: Mapping[str, str] | None,
    files: Mapping[int, int],
    has_terminal: bool = False,
    has_session: bool = False,
) -> int | None:
    """Fork from the process that has imported what this kind needs; None where the environment needs another start."""
    variables = dict(os.environ if environment is None else environment)
    if sys.platform != "linux" or any(
        variables.get(name) != _ENVIRONMENT.get(name)
        for name in variables.keys() | _ENVIRONMENT.keys()
        if name.startswith(_READ_AT_START)
    ):
        return None
    request = {
        "kind": kind,
        "words": words,
        "folder": os.fspath(os.getcwd() if folder is None else folder),
        "environment": variables,
        "numbers": list(files),
        "has_terminal": has_terminal,
        "has_session": has_session,
    }
    return _start_server(*["script"] * (kind == "script")).fork(json.dumps(request).encode(), list(files.values()))


class WarmPopen(subprocess.Popen[Any]):
    """A `Popen` whose process is forked by `fork_program` where that is possible."""

    def _execute_child(self, *arguments: Any) -> None:
        command, executable, preexec, _, passed, folder, environment, _, _, shell, *rest = arguments
        stdin, _, _, stdout, _, stderr, _, *identity = rest  # of `identity`, the last but for 3.10 is a process group
        pid = None
        if not shell and executable in (None, command[0]) and preexec is None:
            given = {0: stdin, 1: stdout, 2: stderr}
            files = {number: number if file == -1 else file for number, file in given.items()}
            files |= dict(zip(passed, passed, strict=True))
            pid = self._fork(command, folder, environment, files, identity)
        if pid is None:
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        self.pid, self._child_created = pid, True
        self._close_pipe_fds(*rest[:6])  # type: ignore[attr-defined]

    def _fork(self, command: Sequence[Any], folder: Any, environment: Any, files: Any, identity: Any) -> int | None:
        return None if _changes(identity) else fork_program(command, folder, environment, files)


class WarmTorchPopen(WarmPopen):
    """A `Popen` whose process, a script under this Python, is forked from one that has imported torch."""

    def _fork(self, command: Sequence[Any], folder: Any, environment: Any, files: Any, identity: Any) -> int | None:
        words, (*user, has_session) = [os.fspath(word) for word in command], identity[:5]
        if words[0] != sys.executable or not words[1].endswith(".py") or _changes([*user, *identity[5:]]):
            return None
        return _fork("script", words[1:], folder, environment, files, has_session=bool(has_session))


def fork_torch(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Let the scripts that these modules start during a test be forked from a process that has imported torch."""
    for module in modules:
        monkeypatch.setattr(module, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": WarmTorchPopen}))


def fork_workers() -> None:
    """Let the processes that read traces for apps and commands of this process be forked, too."""
    from torchprof_tui.trace.loading import worker_process

    # As it is now: a test that changes it, or the interpreter, means another program.
    _STARTS["worker"] = [sys.executable, "-I", "-c", worker_process._START_CODE]
    vars(worker_process)["subprocess"] = SimpleNamespace(**{**vars(subprocess), "Popen": WarmPopen})


def _changes(identity: Sequence[Any]) -> bool:
    """Whether a process has another user, mask of files, session or group than its parent."""
    return any(value not in (None, -1, False) for value in identity)


class _Server:
    """The other end of `_serve`."""

    def __init__(self, *kind: str) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.helpers.warm_program", str(theirs.fileno()), *kind],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
                # A process with threads is not to be forked.
                env={**_ENVIRONMENT, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
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
def _start_server(*kind: str) -> _Server:
    return _Server(*kind)


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
    if request["has_terminal"] or request["has_session"]:
        os.setsid()
    if request["has_terminal"]:
        fcntl.ioctl(1, termios.TIOCSCTTY, 0)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        how: dict[str, Any] = {"buffering": 1, "errors": "backslashreplace"} if number == 2 else {}
        stream = open(number, "w" if number else "r", encoding="utf-8", closefd=False, **how)  # noqa: SIM115  (for good)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if request["kind"] == "worker":
        sys.path[:] = json.loads(request["words"].pop(0))
        sys.argv[:] = ["-c", *request["words"]]
    elif request["kind"] == "script":
        sys.path[0] = os.path.dirname(os.path.realpath(request["words"][0]))
        sys.argv[:] = request["words"]
    else:
        sys.path[0] = request["folder"]
        sys.argv[:] = [str(ROOT / "tui/torchprof_tui/__main__.py"), *request["words"]]


def _import_program() -> dict[str, Callable[[], object]]:
    """Import the program; returns what to run for each kind."""
    from torchprof_tui.cli import main as run_program
    from torchprof_tui.commands.common.parsers import COMMANDS, import_command
    from torchprof_tui.trace.loading.worker_main import main as run_worker

    for name in COMMANDS:
        import_command(name)
    for name in ("rich.table", "torchprof_tui.app", "torchprof_tui.ui.explorer.explorer_screen"):
        importlib.import_module(name)
    return {"worker": run_worker, "program": lambda: sys.exit(run_program())}


def _run_script() -> None:
    runpy.run_path(sys.argv[0], run_name="__main__")


def main() -> None:
    """Import the program, or torch, serve, and run what a request asks for in the child that was forked for it."""
    if "script" in sys.argv[2:]:
        import_torch()
        importlib.import_module("torch.distributed")
        runners: dict[str, Callable[[], object]] = {"script": _run_script}
    else:
        runners = _import_program()
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()  # otherwise the garbage collector of each child would traverse all modules
    request, files = _serve(socket.socket(fileno=int(sys.argv[1])))
    _set_up(request, files)
    run_and_leave(runners[request["kind"]])


if __name__ == "__main__":
    main()
