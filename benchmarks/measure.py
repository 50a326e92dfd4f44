"""What the benchmarks share: memory of a process tree, a program in a pseudo-terminal, medians.

Memory is `RssAnon + RssShmem` of every process in the tree, read from /proc: what would have to be
swapped, not the page cache of a mapped file. It is how the browser is measured as well.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import termios
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SAMPLE_SECONDS, TREE_SECONDS = 0.1, 0.3
"""How often memory is sampled, and new processes are looked for, which takes some milliseconds of a core: what is
measured uses all of them, and at 50 times a second it was slower by an eighth."""


def tree(root: int) -> list[int]:
    """`root` and all its descendants, as /proc shows them now."""
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
    found, todo = [], [root]
    while todo:
        process = todo.pop()
        found.append(process)
        todo.extend(children.get(process, []))
    return found


def memory_bytes(processes: Sequence[int]) -> int:
    """RssAnon + RssShmem of these processes."""
    total = 0
    for process in processes:
        try:
            status = Path(f"/proc/{process}/status").read_text()
        except OSError:
            continue
        for line in status.splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1]) * 1024
    return total


def read_once(file: Path) -> None:
    """So that it lies in the page cache: some machines empty theirs between two runs, and a disk is nobody's speed."""
    buffer = bytearray(1 << 20)
    with file.open("rb", buffering=0) as stream:
        while stream.readinto(buffer):
            pass


class PeakMemory:
    """Samples the memory of a process tree until stopped: `with PeakMemory(pid) as peak: …; peak.bytes`."""

    def __init__(self, root: int) -> None:
        self.root = root
        self.bytes = 0
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
        looked = -TREE_SECONDS
        while not self._stop.is_set():
            now = time.monotonic()
            if now - looked >= TREE_SECONDS:
                processes, looked = tree(self.root), now
            self.bytes = max(self.bytes, memory_bytes(processes))
            self._stop.wait(SAMPLE_SECONDS)


@dataclass(frozen=True)
class Answer:
    """What a key caused: seconds to the end of the first frame, to the last byte of all, and the bytes of both."""

    first: float
    last: float
    size: int
    first_size: int


class Terminal:
    """A program in a pseudo-terminal of `columns` x `rows`, its output counted and timed.

    It answers the one question that the program asks of a modern terminal (synchronised output: yes), so
    that frames end in a mark that can be timed. `burst`: where what is between does not pass that mark on, a frame is
    over when nothing has come for so many seconds.
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
        """What arrives within `timeout` seconds, b"" if nothing does."""
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

    def wait_for(self, text: bytes, timeout: float) -> float:
        """Seconds from the start of the process until `text` has been written. Raises TimeoutError."""
        end = time.perf_counter() + timeout
        while time.perf_counter() < end:
            if text in self.output:
                return self.last - self.started
            self.read(0.05)
        raise TimeoutError(f"{text!r} never appeared; the end of the output was {bytes(self.output[-2000:])!r}")

    def settle(self, quiet: float = 0.08) -> None:
        """Read until nothing has come for `quiet` seconds."""
        while self.read(quiet):
            pass

    def key(self, keys: bytes, quiet: float = 0.06) -> Answer:
        """Send a key and read all that it causes."""
        self.settle(quiet)
        before = len(self.output)
        sent = time.perf_counter()
        first, first_size = 0.0, 0
        os.write(self.fd, keys)
        self.read(1.0)
        while True:
            if not first:
                over = not self.read(self._burst) if self._burst else self.output.find(self.FRAME_END, before) >= 0
                if self._burst and not over:
                    continue
                if over:
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
    """The value that `share` of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]
