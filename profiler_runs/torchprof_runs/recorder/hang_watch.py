"""Write what a rank waits for when no step ends: torch's flight recorder, and the Python stacks of all threads.

Files in the folder `hang` of the run, which `torchprof-tui hang` reads:

- ``comm_trace_rank_N``: the flight recorder, as torch's own watchdog writes it.
- ``stacks_rank_N.json``: steps, the reason of the dump, and the stacks, with the peers of sends and receives.
- ``faulthandler_rank_N.txt``: the stacks alone, where native code holds the GIL; SIGUSR1 adds them at any time.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

from .atomic_files import remove_on_exit

FORMAT = "torchprof/stacks/1"
FOLDER = "hang"
BUFFER_VARIABLES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
BUFFER_ENTRIES = "2000"
GIL_GRACE_SECONDS = 2.0  # after which the stacks are written by faulthandler, without the GIL
TAKEN_SUFFIX = "_no_signal.txt"
MAX_FRAMES = 100  # of one thread
MAX_RECENT_STEPS = 100
PEERS = ("dst", "src", "group_dst", "group_src", "tag")  # arguments of torch.distributed's send and recv


def enable_flight_recorder() -> None:
    """Let torch keep its last collectives. torch reads the variables when it is loaded; the user's own values win."""
    for name in BUFFER_VARIABLES:
        os.environ.setdefault(name, BUFFER_ENTRIES)
    os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")


class HangWatch:
    """Dump once `seconds` pass without the end of a step, and again each time that this happens after another step.

    One that is not started only counts steps, and writes where `write_to` is asked to.
    """

    def __init__(self, folder: str, rank: int, world_size: int, seconds: float, log: Callable[[str], None]) -> None:
        self._folder, self._rank, self._world_size, self._seconds, self._log = folder, rank, world_size, seconds, log
        self._lock, self._write_lock = threading.Lock(), threading.Lock()
        self._steps = 0
        self._last_step = time.monotonic()
        self._durations: list[float] = []
        self._dumped_at = -1  # steps at the last dump
        self._document: dict[str, Any] = {}
        self._resumed: dict[str, Any] = {}  # of the first time that it went on after a dump
        self._stop = threading.Event()
        self._pid = os.getpid()
        self._file: Any = None

    def start(self) -> None:
        """Watch from now on."""
        os.makedirs(self._folder, exist_ok=True)
        path = os.path.join(self._folder, f"faulthandler_rank_{self._rank}.txt")
        self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115 - open until exit
        if not faulthandler.is_enabled():  # else the program has chosen where to write them
            faulthandler.enable(self._file)
        with contextlib.suppress(ValueError, AttributeError):
            if not _is_signal_taken():
                faulthandler.register(signal.SIGUSR1, self._file, all_threads=True)
        self._note_signal()
        self._arm()
        threading.Thread(target=self._watch, name="torchprof-hang-watch", daemon=True).start()

    def note_step(self) -> None:
        """Note the end of a step."""
        now = time.monotonic()
        self._durations = [*self._durations[-MAX_RECENT_STEPS:], now - self._last_step]
        self._steps += 1
        self._last_step = now
        self._arm()
        if self._dumped_at >= 0 and not self._resumed:
            main: dict[str, Any] = next((each for each in self._document["threads"] if each["is_main"]), {"frames": []})
            self._resumed = {"resumed_after_seconds": round(self._durations[-1], 3), "resumed_frames": main["frames"]}
            self._document |= self._resumed
            try:
                self._write(self._document)
            except OSError as failure:  # a full disk
                self._log(f"not written that the program went on: {failure}")

    def finish(self, reason: str, error: BaseException | None = None) -> None:
        """End the watch with the program. What failed is dumped; of the end of a rank, only its steps are written."""
        self._stop.set()
        faulthandler.cancel_dump_traceback_later()
        if os.getpid() != self._pid:
            return
        if self._dumped_at < self._steps:
            self.dump(reason, error)
        elif error is not None:  # what the rank waited for counts more than what ended the wait
            self._document["error"] = _describe_error(error)
            self._write(self._document)

    def dump(self, reason: str, error: BaseException | None = None) -> None:
        """Write the files. What cannot be written is logged: nothing here may end the program."""
        with self._lock:
            try:
                document = self._describe(reason, error)
                self._document, self._dumped_at = document, document["steps"]  # a step may end while it is written
                self._write_all(self._folder, document)
            except Exception as failure:
                self._dumped_at = self._steps
                self._log(f"no dump of the hang: {type(failure).__name__}: {failure}")
                return
        if error is None and reason != "finished":
            self._log(f"{reason}: torchprof-tui hang {self._folder}")

    def write_to(self, folder: str, reason: str, with_recorder: bool) -> None:
        """Write what is known now to another folder; the stacks last."""
        self._write_all(folder, self._describe(reason, None), with_recorder)

    def _arm(self) -> None:
        if self._file is None:  # nothing is dumped unasked
            return
        faulthandler.cancel_dump_traceback_later()
        faulthandler.dump_traceback_later(self._seconds + GIL_GRACE_SECONDS, file=self._file)

    def _watch(self) -> None:
        while not self._stop.wait(min(self._seconds / 10, 1.0)):
            if os.getpid() != self._pid:
                return
            self._note_signal()
            if self._dumped_at < self._steps and time.monotonic() - self._last_step >= self._seconds:
                faulthandler.cancel_dump_traceback_later()
                self.dump(f"no step ended for {self._seconds:g} s")

    def _note_signal(self) -> None:
        """Rename the file by which `hang --live` knows whom it may send SIGUSR1, once the program handles it itself."""
        name = self._file.name
        if _is_signal_taken() and os.path.exists(name):
            with contextlib.suppress(OSError):
                os.replace(name, f"{name.removesuffix('.txt')}{TAKEN_SUFFIX}")

    def _describe(self, reason: str, error: BaseException | None) -> dict[str, Any]:
        steps = sorted(self._durations[1:] or self._durations)
        threads = {thread.ident: thread for thread in threading.enumerate()}
        return {
            "schema": FORMAT,
            "rank": self._rank,
            "world_size": self._world_size,
            "host": socket.gethostname(),
            "pid": self._pid,
            "time_ns": time.time_ns(),
            "reason": reason,
            "steps": self._steps,
            "seconds_since_step": round(time.monotonic() - self._last_step, 3),
            "median_step_seconds": round(steps[len(steps) // 2], 6) if steps else None,
            "error": None if error is None else _describe_error(error),
            **self._resumed,
            "threads": [
                {
                    "name": thread.name if (thread := threads.get(ident)) else "",
                    "is_main": ident == threading.main_thread().ident,
                    "frames": list(_list_frames(frame)),
                }
                for ident, frame in sys._current_frames().items()
                if ident != threading.get_ident()
            ],
        }

    def _write_all(self, folder: str, document: dict[str, Any], with_recorder: bool = True) -> None:
        data = _read_flight_recorder() if with_recorder else b""
        if data:
            _write_file(os.path.join(folder, f"comm_trace_rank_{self._rank}"), data)
        self._write(document, folder)

    def _write(self, document: dict[str, Any], folder: str = "") -> None:
        path = os.path.join(folder or self._folder, f"stacks_rank_{self._rank}.json")
        with self._write_lock:  # the end of a step may write the same file
            _write_file(path, json.dumps(document, separators=(",", ":")).encode())


def _is_signal_taken() -> bool:
    """Tell whether the program handles SIGUSR1, to save or requeue itself; the handler of faulthandler is not seen."""
    return hasattr(signal, "SIGUSR1") and signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL


def _write_file(path: str, data: bytes) -> None:
    part = f"{path}.part"
    with remove_on_exit(part):
        with open(part, "wb") as file:
            file.write(data)
        os.replace(part, path)


def _read_flight_recorder() -> bytes:
    """Return the pickle of torch's flight recorder, of NCCL where that is used; b"" where there is none."""
    module: Any = sys.modules.get("torch._C._distributed_c10d")
    for name in ("_dump_nccl_trace", "_dump_fr_trace"):
        with contextlib.suppress(Exception):
            data = getattr(module, name)()
            if isinstance(data, bytes) and b"profiling_name" in data:
                return data
    return b""


def _list_frames(frame: types.FrameType | None) -> Iterator[dict[str, Any]]:
    """List the frames of a thread, innermost first."""
    for _ in range(MAX_FRAMES):
        if frame is None:
            return
        code = frame.f_code
        found: dict[str, Any] = {"name": code.co_name, "filename": code.co_filename, "line": frame.f_lineno or 0}
        if code.co_name in ("send", "recv", "isend", "irecv") and code.co_filename.endswith("distributed_c10d.py"):
            values = frame.f_locals
            found["peers"] = {name: values[name] for name in PEERS if type(values.get(name)) is int}
        yield found
        frame = frame.f_back


def _describe_error(error: BaseException) -> dict[str, Any]:
    lines = str(error).strip().splitlines()
    frames = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        frames.append({"name": code.co_name, "filename": code.co_filename, "line": traceback.tb_lineno})
        traceback = traceback.tb_next
    return {
        "type": type(error).__name__,
        "message": lines[0][:500] if lines else "",
        "frames": frames[::-1][:MAX_FRAMES],
    }
