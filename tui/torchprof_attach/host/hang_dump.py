"""Find since when processes make no progress, and collect their stacks and flight recorders.

Evidence of progress, the first that there is:

- steps: the recorder in the process (`run`, `torchprof_runs.install`) says when the last one ended.
- the main thread, by the kernel's counters. In a collective of gloo, or while it waits for data, it sleeps. On a GPU
  that hangs it spins: it takes CPU time without ever giving up its core by itself, as each step does.

The load of a GPU is no evidence: kernels of NCCL that wait keep it at 100 %.

Collected is, as far as there is a way: the answer of the recorder (flight recorder and stacks); torch's own dump, for
which its named pipe asks (`TORCH_NCCL_DEBUG_INFO_PIPE_FILE`); stacks by py-spy, which does not stop the process.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torchprof_attach.host.processes import Process, check_private, scratch_folder

IDLE_SECONDS, IDLE_SHARE = 0.002, 0.0005
"""CPU time in which a main thread makes no step: loops that only poll (each second, or every 5 s) take less."""

ANSWER_SECONDS = 10.0
TORCH_SECONDS = 30.0
SETTLE_SECONDS = 0.3
PY_SPY_SECONDS = 30.0
PY_SPY_TRIES = 5  # without a pause, reading fails where frames change meanwhile

PIPE_VARIABLES = ("TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
DUMP_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
OLD_DUMP, NEW_DUMP = "/tmp/nccl_trace_rank_", "torch/comm_lib_trace_rank_"
"""Where torch writes without a variable: before 2.9, and since then in the folder of caches."""


class NothingTakenError(OSError):
    """There is no way to see what a process waits for; `str()` is one line."""


# -- progress ----------------------------------------------------------------------------------------------------------


@dataclass
class _Seen:
    """What is known of a process. `asked`: a folder for the answer of its recorder. `since`: of its last progress;
    `last_step`: s since the epoch."""

    asked: str
    since: float = field(default_factory=time.monotonic)
    activity: tuple[int, int] | None = None
    last_step: float | None = None


class ProgressReader:
    """Notes when processes last made progress. `create_folder`: returns a new private folder."""

    def __init__(self, create_folder: Callable[[], str]) -> None:
        self._create_folder = create_folder
        self._seen: dict[tuple[int, int], _Seen] = {}

    def read(self, process: Process, uses_gpu: bool) -> dict[str, Any]:
        """Read since when a process makes no progress, s, and by what it is known. Call it again and again."""
        key = process.pid, process.start
        if key not in self._seen:
            self._seen[key] = _Seen(self._create_folder() if find_pipe(process) else "")
        seen = self._seen[key]
        now, activity = time.monotonic(), read_activity(process.pid)
        ran, gave_up = (after - before for after, before in zip(activity, seen.activity or activity))  # noqa: B905
        is_idle = ran / 1e9 <= IDLE_SECONDS + IDLE_SHARE * (now - seen.since) or (uses_gpu and not gave_up)
        if seen.activity is None or not is_idle:
            seen.since, seen.activity = now, activity
        if seen.asked:  # read the answer to the last question, and ask again: nothing is waited for
            for path in glob.glob(f"{glob.escape(seen.asked)}/stacks_rank_*.json"):
                with open(path, encoding="utf-8") as file:
                    answer = json.load(file)
                os.unlink(path)
                if answer["steps"]:  # else nothing counts them
                    seen.last_step = answer["time_ns"] / 1e9 - answer["seconds_since_step"]
            ask_recorder(process, seen.asked, False)
        still, evidence = time.monotonic() - seen.since, "its main thread has only waited"
        if seen.last_step is not None:
            still, evidence = time.time() - seen.last_step, "no step ended"
        return {"pid": process.pid, "start": process.start, "still_seconds": max(still, 0.0), "evidence": evidence}


def read_activity(pid: int) -> tuple[int, int]:
    """Read CPU time (ns) of a main thread, and how often it gave up its core by itself. Raises OSError."""
    with open(f"/proc/{pid}/task/{pid}/status", encoding="utf-8", errors="replace") as file:
        found = re.search(r"^voluntary_ctxt_switches:\s*([0-9]+)", file.read(), re.MULTILINE)
    with open(f"/proc/{pid}/task/{pid}/schedstat", encoding="utf-8") as file:
        return int(file.read().split()[0]), int(found[1]) if found else 0


# -- dumps -------------------------------------------------------------------------------------------------------------


def take_dump(process: Process, folder: str, stopped: Callable[[], bool]) -> tuple[list[str], list[str]]:
    """Take what a process waits for: files, and why there are no more of them. Raises NothingTakenError."""
    if process.problem:
        raise NothingTakenError(process.problem)
    reasons: list[str] = []
    for take in (_take_from_recorder, _take_from_torch, _take_from_py_spy):
        try:
            take(process, folder, stopped)
        except (OSError, subprocess.SubprocessError) as error:
            reasons.append(" ".join(str(error).split()))
        if glob.glob(f"{glob.escape(folder)}/stacks_rank_*.json"):  # of the recorder, which says all
            break
    files = sorted(path for path in glob.glob(f"{glob.escape(folder)}/*_rank_*") if not path.endswith(".part"))
    if not files:
        raise NothingTakenError("; ".join(reasons))
    return files, reasons if not any("stacks" in os.path.basename(path) for path in files) else []


def find_pipe(process: Process) -> str:
    """Find the pipe of the recorder in a process; "" where there is none."""
    path = f"{scratch_folder()}/{process.pid}-{process.start}.pipe"
    try:
        check_private(scratch_folder())
        return path if _is_own_pipe(path) else ""
    except OSError:
        return ""


def ask_recorder(process: Process, folder: str, with_recorder: bool) -> None:
    """Let the recorder in a process write to a folder. Raises OSError where it has ended."""
    _write_pipe(find_pipe(process), json.dumps({"folder": folder, "recorder": with_recorder}).encode() + b"\n")


def _take_from_recorder(process: Process, folder: str, stopped: Callable[[], bool]) -> None:
    if not find_pipe(process):
        raise OSError("no recorder is in it (run, torchprof_runs.install())")
    ask_recorder(process, folder, True)
    _wait(lambda: bool(glob.glob(f"{glob.escape(folder)}/stacks_rank_*.json")), ANSWER_SECONDS, stopped)


def _take_from_torch(process: Process, folder: str, stopped: Callable[[], bool]) -> None:
    rank = process.rank or 0
    stem = next((process.environment[name] for name in PIPE_VARIABLES if process.environment.get(name)), "")
    pipe = os.path.join(os.readlink(f"/proc/{process.pid}/cwd"), f"{stem}{rank}.pipe")
    if not stem or not _is_own_pipe(pipe):
        raise OSError(f"torch made no pipe ({PIPE_VARIABLES[1]})")
    caches = process.environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    stems = [process.environment[name] for name in DUMP_VARIABLES if process.environment.get(name)]
    paths = [f"{each}{rank}" for each in (*stems, OLD_DUMP, os.path.join(caches, NEW_DUMP))]
    before = {path: _read_state(path) for path in paths}
    _write_pipe(pipe, b"1\n")
    sizes: dict[str, tuple[int, int] | None] = {}
    since = time.monotonic()

    def is_complete() -> bool:
        nonlocal sizes, since
        now = {path: state for path in paths if (state := _read_state(path)) != before[path]}
        if now != sizes:
            sizes, since = now, time.monotonic()
        return bool(sizes) and time.monotonic() - since > SETTLE_SECONDS

    _wait(is_complete, TORCH_SECONDS, stopped)
    shutil.copyfile(next(iter(sizes)), f"{folder}/nccl_trace_rank_{rank}")


def _take_from_py_spy(process: Process, folder: str, stopped: Callable[[], bool]) -> None:
    program = find_py_spy(process)
    if not program:
        raise OSError("py-spy is not installed")
    command = [program, "dump", "--nonblocking", "--full-filenames", "--pid", str(process.pid)]
    for _ in range(PY_SPY_TRIES):
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PY_SPY_SECONDS, check=False
        )
        if done.returncode == 0 or stopped():
            break
        time.sleep(0.2)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise OSError(f"py-spy: {lines[0][:200] if lines else f'exit status {done.returncode}'}")
    with open(f"{folder}/py_spy_stacks_rank_{process.rank or 0}.txt", "wb") as file:
        file.write(done.stdout)


def find_py_spy(process: Process) -> str:
    """Find py-spy on the PATH of a process, beside its Python, or on our PATH; "" for none."""
    beside = os.path.join(os.readlink(f"/proc/{process.pid}/cwd"), os.path.dirname(process.command[0]))
    places = [*process.environment.get("PATH", "").split(":"), beside, *os.environ.get("PATH", "").split(":")]
    return shutil.which("py-spy", path=":".join(each for each in places if os.path.isabs(each))) or ""


def _is_own_pipe(path: str) -> bool:
    try:
        state = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISFIFO(state.st_mode) and state.st_uid == os.geteuid()


def _write_pipe(path: str, data: bytes) -> None:
    """Write to a named pipe without waiting. Raises OSError where nobody reads it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def _read_state(path: str) -> tuple[int, int] | None:
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size


def _wait(condition: Callable[[], bool], seconds: float, stopped: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until or stopped():
            raise OSError(f"it did not answer for {seconds:.0f} s")
        time.sleep(0.05)
