"""Shared tools of the benchmarks: memory of a process tree, a program in a pseudo-terminal, medians.

Memory is `RssAnon + RssShmem` of every process in the tree, from /proc: what would have to be swapped, without the page
cache of mapped files. The browser is measured in the same way. `proportional_bytes` (Pss) also counts mapped files, a
page that several processes map once; the sum of Rss counts it once for each, 30 to 40 MB of libraries here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

SAMPLE_SECONDS, TREE_SECONDS = 0.1, 0.3
"""Intervals of sampling the memory, and of listing the processes. Both take some milliseconds of a core, and the
measured program uses all cores: sampling 50 times per second slowed it down by an eighth."""


def list_process_tree(root: int) -> list[int]:
    """List `root` and all its current descendants, from /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        parent = int(stat[stat.rindex(")") + 2 :].split()[1])
        children.setdefault(parent, []).append(int(entry.name))
    processes, todo = [], [root]
    while todo:
        process = todo.pop()
        processes.append(process)
        todo.extend(children.get(process, []))
    return processes


def memory_bytes(processes: Sequence[int]) -> int:
    """RssAnon + RssShmem of these processes, and the files in memory that they have open."""
    total = _memory_files_bytes(processes)
    for process in processes:
        try:
            status = Path(f"/proc/{process}/status").read_text()
        except OSError:
            continue
        for line in status.splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1]) * 1024
    return total


def proportional_bytes(processes: Sequence[int]) -> int:
    """Pss of these processes, and the files in memory that they have open. Slows large processes down: do not time."""
    total = _memory_files_bytes(processes)
    for process in processes:
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{process}/smaps_rollup").read_text()
            total += sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))
    return total


def _memory_files_bytes(processes: Sequence[int]) -> int:
    """Size in memory of the files that these processes made by `memfd_create`, each once; they are not mapped."""
    sizes: dict[int, int] = {}
    for process in processes:
        with contextlib.suppress(OSError):
            for link in Path(f"/proc/{process}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.readlink(link).startswith("/memfd:"):
                        stat = link.stat()
                        sizes[stat.st_ino] = stat.st_blocks * 512
    return sum(sizes.values())


def read_once(trace: Path) -> None:
    """Read a file, or the files of a folder, into the page cache, so that no disk access is measured.

    Some machines empty their page cache between two runs.
    """
    buffer = bytearray(1 << 20)
    for file in sorted(trace.iterdir()) if trace.is_dir() else [trace]:
        with file.open("rb", buffering=0) as stream:
            while stream.readinto(buffer):
                pass


class PeakMemory:
    """Samples the memory of a process tree until stopped: `with PeakMemory(pid) as peak: …; peak.bytes`.

    `samples`: (seconds since the start, bytes) in order of time. `measure`: what is sampled, of a list of processes.
    """

    def __init__(self, root: int, measure: Callable[[Sequence[int]], int] = memory_bytes) -> None:
        self.root = root
        self._measure = measure
        self.bytes = 0
        self.samples: list[tuple[float, int]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        processes: list[int] = []
        last_listing = -TREE_SECONDS
        start = time.monotonic()
        while not self._stop.is_set():
            now = time.monotonic()
            if now - last_listing >= TREE_SECONDS:
                processes, last_listing = list_process_tree(self.root), now
            self.samples.append((now - start, self._measure(processes)))
            self.bytes = max(self.bytes, self.samples[-1][1])
            self._stop.wait(SAMPLE_SECONDS)


def write_bytecode() -> None:
    """Have this process and those that it starts keep the bytecode of modules, as that of an installed program is kept.

    Where PYTHONDONTWRITEBYTECODE is set, each start would compile this program's modules: 0.1 s before the first frame,
    and pauses of the event loop while a thread imports.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


@dataclass(frozen=True)
class Answer:
    """The output after a key: seconds to the end of the first frame and to the last byte, and the bytes of both."""

    first: float
    last: float
    size: int
    first_size: int


class Terminal:
    """A program in a pseudo-terminal of `columns` x `rows`, whose output is counted and timed.

    It answers the program's query for synchronised output with yes, so that each frame ends with a mark. `burst`: if a
    program in between does not forward that mark, a frame ends after this many seconds without output.
    """

    SYNC_QUERY, SYNC_ANSWER = b"\x1b[?2026$p", b"\x1b[?2026;2$y"
    FRAME_END = b"\x1b[?2026l"

    def __init__(
        self, command: Sequence[str], columns: int = 200, rows: int = 50, burst: float = 0.0, **environment: str
    ) -> None:
        self._burst = burst
        self.started = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm-256color", "COLORTERM": "", **environment})
            os.execvp(command[0], list(command))
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.output = bytearray()
        self.last = self.started

    def read(self, timeout: float) -> bytes:
        """Read what arrives within `timeout` seconds, b"" if nothing does."""
        ready, _, _ = select.select([self.fd], [], [], timeout)
        if not ready:
            return b""
        try:
            data = os.read(self.fd, 1 << 16)
        except OSError:
            return b""
        self.last = time.perf_counter()
        if self.SYNC_QUERY in data:
            os.write(self.fd, self.SYNC_ANSWER)
        self.output += data
        return data

    def wait_for(self, text: bytes | Sequence[bytes], timeout: float) -> float:
        """Wait for a text, or one of several. Returns seconds from the start of the process. Raises TimeoutError."""
        texts = [text] if isinstance(text, bytes) else text
        end = time.perf_counter() + timeout
        while time.perf_counter() < end:
            if any(each in self.output for each in texts):
                return self.last - self.started
            self.read(0.05)
        raise TimeoutError(f"{text!r} never appeared; the end of the output was {bytes(self.output[-2000:])!r}")

    def settle(self, quiet: float = 0.08) -> None:
        """Read until there is no output for `quiet` seconds."""
        while self.read(quiet):
            pass

    def key(self, keys: bytes, quiet: float = 0.06) -> Answer:
        """Send a key and read all output that follows, until there is none for `quiet` seconds."""
        self.settle()  # the key before has ended with its own silence
        before = len(self.output)
        sent = time.perf_counter()
        first, first_size = 0.0, 0
        os.write(self.fd, keys)
        self.read(1.0)
        while True:
            if not first:
                ended = not self.read(self._burst) if self._burst else self.output.find(self.FRAME_END, before) >= 0
                if self._burst and not ended:
                    continue
                if ended:
                    first, first_size = self.last - sent, len(self.output) - before
            if not self.read(quiet):
                break
        last, size = self.last - sent, len(self.output) - before
        return Answer(first or last, last, size, first_size or size)

    def close(self) -> None:
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(self.fd)


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that a share of the values does not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]
