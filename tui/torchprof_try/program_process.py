"""Run one process of a program in a group of its own, end it with all that it has started, and clean up after it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchprof_tui.runs.recording_request import HARNESS, RecordingRequest, RequestError, find_default_python
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.records import record

GRACE_SECONDS = 5.0  # after the report of the first rank is there, until the other ranks are ended

POLL_SECONDS = 0.05
LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch")


class TrialsStopped(Exception):  # noqa: N818 - nothing went wrong
    """The user has stopped the trials."""


class ProgramProcess:
    """Runs processes one after the other; `stop`, from any thread, ends the one that runs, and no other starts."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = threading.Event()

    def stop(self) -> None:
        """Let `run` end its process and raise TrialsStopped, now and from now on."""
        self._is_stopped.set()

    def run(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        seconds: float,
        report: str = "",
        cwd: str | None = None,
    ) -> str:
        """Run a process until it ends, or a while after `report` exists; return why it failed. Raises TrialsStopped."""
        with tempfile.TemporaryFile() as output:
            if self._is_stopped.is_set():
                raise TrialsStopped
            try:
                self._process = subprocess.Popen(
                    argv,
                    env=environment,
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            except OSError as error:
                raise TraceError(f"{argv[0]}: {error.strerror or error}") from error
            try:
                status = self._wait(self._process, seconds, report)
            finally:
                self._end()
            if status is None:
                return f"no end within {seconds:.0f} s"
            output.seek(max(0, output.seek(0, os.SEEK_END) - 4000))
            lines = output.read().decode("utf-8", "replace").strip().splitlines()
        return "" if status == 0 else (lines[-1].strip()[:200] if lines else f"exit status {status}")

    def _wait(self, process: subprocess.Popen[bytes], seconds: float, report: str) -> int | None:
        """Wait for the end. Returns the exit status, None where the time is over."""
        deadline = time.monotonic() + seconds
        is_reported = False
        while (status := process.poll()) is None:
            if time.monotonic() > deadline:
                return 0 if is_reported else None
            if self._is_stopped.wait(POLL_SECONDS):
                raise TrialsStopped
            if report and not is_reported and os.path.exists(report):
                is_reported, deadline = True, time.monotonic() + GRACE_SECONDS
        return status

    def _end(self) -> None:
        """End the process and all that it has started, also in sessions of their own, as torchrun's ranks are."""
        process, self._process = self._process, None
        if process is None:
            return
        children = _list_descendants(process.pid) if process.poll() is None else []
        for number, seconds in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
            for child in children:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(child, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            if not _has_group(process.pid) and not any(_is_running(child) for child in children):
                return


def _list_descendants(pid: int) -> list[int]:
    """List the processes that a process has started, and those that these have: by Linux's /proc, elsewhere by ps."""
    parents: dict[int, int] = {}
    for name in filter(str.isdecimal, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path("/proc", name, "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            parents[int(name)] = int(fields[1])
    if not parents:
        with contextlib.suppress(OSError, ValueError):
            text = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False).stdout
            parents = {int(child): int(parent) for child, parent in map(str.split, text.splitlines())}
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {pid})


def _is_running(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, 0)
        return True
    return False


def _has_group(group: int) -> bool:
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            return False
        time.sleep(0.02)
    return True


# --- the command of the user --------------------------------------------------------------------------------------


@record
class ProgramCommand:
    """A user's command, split: `launcher` is followed by the harness, which runs `program`; `is_module`: as `-m`.

    `is_launched`: by torchrun, in several processes.
    """

    launcher: tuple[str, ...]
    program: tuple[str, ...]
    is_module: bool = False
    is_launched: bool = False


def split_command(command: tuple[str, ...], python: str | None = None) -> ProgramCommand:
    """Split a command as `run` takes it. `python`: the interpreter that the user named. Raises TraceError."""
    if command[:1] == ("-m",):
        command, python = ("python", *command), python or find_default_python(os.environ)
    try:
        words = RecordingRequest(command, (), python, "-").argv()
    except RequestError as error:
        raise TraceError(str(error)) from error
    place = words.index(str(HARNESS))
    interpreter, program = tuple(words[:place]), words[place + 3 :]
    is_module = program[:1] == ["-m"]
    program = program[1:] if is_module else program
    if program[0] in LAUNCHERS if is_module else os.path.basename(program[0]) == "torchrun":
        script = next((index for index, word in enumerate(program) if index and word.endswith(".py")), None)
        flag = next((index for index, word in enumerate(program) if word in ("-m", "--module")), None)
        is_module = flag is not None and (script is None or flag < script)
        if is_module and flag is not None:
            launcher, program = program[1:flag], program[flag + 1 :]
        elif script is not None:
            launcher, program = program[1:script], program[script:]
        else:  # nothing that could be a script
            raise TraceError("torchrun: name the script, FILE.py, or -m MODULE as the last of its own options")
        launched = (*interpreter, "-m", LAUNCHERS[0], *launcher)
        return ProgramCommand(launched, tuple(program), is_module, True)
    return ProgramCommand(interpreter, tuple(program), is_module)


# --- files --------------------------------------------------------------------------------------------------------


def read_journal(path: str) -> tuple[list[str], str]:
    """Read what a process and its children have created, and what was refused; "" for nothing."""
    try:
        lines = Path(path).read_text(encoding="ascii").splitlines()
    except OSError:
        return [], ""
    noted = [json.loads(line) for line in lines if line.endswith("}")]  # the last may be cut
    return [each["created"] for each in noted if "created" in each], next(
        (each["refused"] for each in noted if "refused" in each), ""
    )


def remove_created(paths: Sequence[str]) -> None:
    """Remove files that a run created, and folders with all that is in them: these were not there before it."""
    for path in reversed(paths):
        with contextlib.suppress(OSError):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.remove(path)
