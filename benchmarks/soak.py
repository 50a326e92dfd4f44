"""Soak: use the program for minutes on end, and check that it holds no more memory, files, threads or processes.

    python -m benchmarks.soak [TRACE.json] [--minutes 10] [--ranks FOLDER] [--seed 1] [--harness FILE] [--only SESSION]
                              [--samples FILE.csv]

Four sessions, each one run of the program in a pseudo-terminal, with its own share of the minutes:

    keys    random keys on TRACE, a large one (without it, a sample)
    ranks   random keys on a folder of ranks (without it, the sample of two ranks)
    traces  one trace after the other opened in one session
    runs    recordings started, and ended by ctrl+c or by SIGKILL in turn; FILE stands for the harness where this
            Python has no torch (tests/helpers/fake_harness.py)

After each round the program is left alone until it is quiet; then its memory (RssAnon + RssShmem), file descriptors,
threads, child processes and temporary files are counted, memory and threads with those of its children. A session has
a row for each count: the first sample, the last, and the slope per hour of a line through all samples after the warm-up
(the first fifth). The exit status is 1 where a count is not flat: its last quarter is larger than the quarter after the
warm-up by more than ALLOWED_GROWTH, or the program has ended.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from benchmarks.measure import Terminal
from benchmarks.opening import LANES_DRAWN
from torchprof_samples import SAMPLES

KEYS = [*"wwssaaddWSADf0{}[]nNmpJKiTt?hHvbB+-", " ", "\t", "\r", "\x1b", "\x7f", *("\x1b[" + c for c in "ABCDHFZ")]
"""Keys that move, zoom, fold, and open and leave screens; none that quits, opens another trace, records or writes."""

SEARCHES = ("mat", "cuda", "sum", "add", "x")
"""Typed after `/`. On a screen without a search they are keys, so they have no `o`, `q`, `r` or `e` either."""

KEYS_PER_ROUND = 60
QUIET_SECONDS = 0.4
SAMPLE_QUIET_SECONDS = 1.2
"""Seconds without output before a sample: a full collection of garbage waits for 0.3 s without a frame."""
MAX_SETTLE_SECONDS = 3.0
MAX_BACKLOG_SECONDS = 60.0
"""Seconds within which the keys of a round are done with: a sample before that counts the keys that wait."""
START_SECONDS = 120.0
"""Seconds within which lanes appear on a busy machine."""

ALLOWED_GROWTH = {"memory_mb": (0.08, 8.0), "descriptors": (0.0, 2.0), "threads": (0.0, 3.0)}
"""Growth that counts as flat: (share, absolute). Others: one more is flat."""

SLEEPER = "import time\nprint('sleeping', flush=True)\ntime.sleep(600)\n"


@dataclass(frozen=True, slots=True)
class Sample:
    """The counts of one moment. `seconds`: since the start of the session."""

    seconds: float
    memory_mb: float
    descriptors: int
    threads: int
    children: int
    temporary_files: int


@dataclass(frozen=True, slots=True)
class Workplace:
    """The folders of one session: temporary files, cache and recordings are apart from all others."""

    folder: Path

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    def environment(self) -> dict[str, str]:
        """Return the variables that keep the program inside, and create the folders."""
        for name in ("tmp", "work"):
            (self.folder / name).mkdir(exist_ok=True)
        return {
            "TMPDIR": str(self.temporary),
            "TORCHPROF_TUI_CACHE": str(self.folder / "cache"),
            "XDG_STATE_HOME": str(self.folder / "state"),
        }

    def count_temporary_files(self) -> int:
        """Count temporary files and drafts of cache entries."""
        drafts = (self.folder / "cache").glob(".draft-*")
        return sum(1 for _ in self.temporary.rglob("*")) + sum(1 for _ in drafts)


class Session:
    """One run of the program, and what was counted in it."""

    def __init__(
        self, name: str, command: Sequence[str], workplace: Workplace, samples_file: Path | None = None
    ) -> None:
        self.name = name
        self._samples_file = samples_file
        self.samples: list[Sample] = []
        self.rounds = 0
        self.alive = True
        self.workplace = workplace
        environment = workplace.environment()
        words = [sys.executable, "-c", f"import os; os.chdir({str(workplace.folder / 'work')!r}); {command[0]}"]
        self.terminal = Terminal([*words, *command[1:]], 160, 48, 0.0, **environment)

    def send(self, keys: str) -> None:
        """Send keys at once."""
        with suppress(OSError):
            os.write(self.terminal.fd, keys.encode())

    def wait_for_lanes(self) -> None:
        """Wait until lanes are drawn. Raises TimeoutError."""
        self.terminal.wait_for(LANES_DRAWN, START_SECONDS)

    def settle(self, quiet: float, limit: float = MAX_SETTLE_SECONDS) -> None:
        """Read until there is no output for `quiet` seconds, `limit` seconds at most: a clock is never quiet."""
        end = time.monotonic() + limit
        while self.terminal.read(quiet) and time.monotonic() < end:
            pass

    def forget_output(self, quiet: float = QUIET_SECONDS, limit: float = MAX_SETTLE_SECONDS) -> None:
        """Drop the output so far, so that only later output is waited for; `quiet`, `limit`: see `settle`."""
        self.settle(quiet, limit)
        self.terminal.output.clear()

    def run(self, minutes: float, play: Callable[[Session], None]) -> None:
        """Play rounds and take a sample after each, until the time is over or the program has ended."""
        began = time.monotonic()
        while self.alive and time.monotonic() - began < 60 * minutes:
            self.alive = self._play_round(play)
            if self.alive:
                self.rounds += 1
                self._take_sample(time.monotonic() - began)

    def _play_round(self, play: Callable[[Session], None]) -> bool:
        """Play a round; return whether the program did what was waited for."""
        try:
            play(self)
            self.forget_output(SAMPLE_QUIET_SECONDS, MAX_BACKLOG_SECONDS)
        except TimeoutError as error:
            print(f"{self.name}: {error}", file=sys.stderr)
            return False
        return True

    def close(self) -> None:
        """Quit with `q`, which must end the program, and take what is left."""
        if self.alive:
            for _ in range(6):
                self.send("\x1b")
                self.settle(QUIET_SECONDS)
            self.send("q")
            end = time.monotonic() + 20
            while time.monotonic() < end and _is_running(self.terminal.pid):
                self.terminal.read(0.1)
            self.alive = not _is_running(self.terminal.pid)
            if not self.alive:
                print(f"{self.name}: q does not end the program", file=sys.stderr)
        self.terminal.close()

    def _take_sample(self, seconds: float) -> None:
        processes = _list_tree(self.terminal.pid)
        if not processes or not _is_running(self.terminal.pid):
            print(f"{self.name}: the program has ended: {bytes(self.terminal.output[-400:])!r}", file=sys.stderr)
            self.alive = False
            return
        statuses = [_read_status(pid) for pid in processes]
        memory = sum(int(status.get(key, "0 kB").split()[0]) for status in statuses for key in ("RssAnon", "RssShmem"))
        threads = sum(int(status.get("Threads", "0")) for status in statuses)
        self.samples.append(
            Sample(
                seconds,
                memory / 1024,
                len(os.listdir(f"/proc/{self.terminal.pid}/fd")),
                threads,
                len(processes) - 1,
                self.workplace.count_temporary_files(),
            )
        )
        if self._samples_file is not None:
            values = (getattr(self.samples[-1], field.name) for field in fields(Sample))
            with self._samples_file.open("a") as file:
                file.write(",".join([self.name, *(f"{value:.1f}" for value in values)]) + "\n")


def _is_running(pid: int) -> bool:
    return _read_status(pid).get("State", "Z")[0] not in "ZX"


def _read_status(pid: int) -> dict[str, str]:
    """Read /proc/PID/status, {} where the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _list_tree(pid: int) -> list[int]:
    """List a process and its descendants, zombies included: they take an entry each until they are reaped."""
    children: dict[int, list[int]] = {}
    for other in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        children.setdefault(int(_read_status(other).get("PPid", "0")), []).append(other)
    found = [pid]
    for process in found:
        found += children.get(process, [])
    return found


def play_keys(session: Session, generator: random.Random) -> None:
    """Send random keys, now and then a search; then return to the lanes."""
    for _ in range(KEYS_PER_ROUND):
        if generator.random() < 0.03:
            session.send("/" + generator.choice(SEARCHES) + generator.choice("\r\x1b"))
        session.send(generator.choice(KEYS))
        session.terminal.read(0.03)
    for _ in range(6):
        session.send("\x1b")
        session.settle(0.15)
    session.send("f")


def play_trace(session: Session, paths: list[str]) -> None:
    """Open the next trace over the one on screen, and look at it."""
    session.terminal.output.clear()
    session.send("o")
    session.terminal.wait_for(b"type a path", START_SECONDS)
    for keys in ("o", paths[session.rounds % len(paths)]):
        session.send(keys)
        session.forget_output(0.2)
    session.send("\r")
    session.wait_for_lanes()
    for key in ("w", "w", "d", "t", "\x1b", "f"):
        session.send(key)
        session.settle(0.05)


def play_run(session: Session) -> None:
    """Start a recording of a program that sleeps; end it by ctrl+c, which opens its trace, or by SIGKILL."""
    session.terminal.output.clear()
    session.send("R")
    session.terminal.wait_for(b"Workloads", START_SECONDS)
    session.forget_output()
    session.send("python sleeper.py")
    session.forget_output()
    session.send("\x12")
    session.terminal.wait_for(b"sleeping", START_SECONDS)
    session.forget_output()
    if session.rounds % 2:
        for pid in _list_tree(session.terminal.pid)[1:]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        session.forget_output()
        session.send("\x1b")
    else:
        session.send("\x03")
        session.wait_for_lanes()


def format_rows(session: Session) -> tuple[list[str], bool]:
    """Format the counts of a session as rows of a table; return them and whether all are flat."""
    samples = session.samples
    measured = samples[len(samples) // 5 :]
    if len(measured) < 4:
        return [f"| {session.name} | too few samples: {len(samples)} | | | | |"], False
    hours = np.array([sample.seconds for sample in measured]) / 3600
    quarter = max(len(measured) // 4, 1)
    rows, all_flat = [], session.alive
    for name in (field.name for field in fields(Sample) if field.name != "seconds"):
        values = [float(getattr(sample, name)) for sample in measured]
        slope = float(np.polyfit(hours, values, 1)[0])
        early, late = statistics.median(values[:quarter]), statistics.median(values[-quarter:])
        share, absolute = ALLOWED_GROWTH.get(name, (0.0, 1.0))
        flat = late - early <= max(share * early, absolute)
        all_flat &= flat
        label = f"{session.name}, {session.rounds} rounds, {samples[-1].seconds / 60:.1f} min"
        cells = (label, name.replace("_", " "), f"{getattr(samples[0], name):.0f}", f"{values[-1]:.0f}")
        rows.append(f"| {' | '.join(cells)} | {slope:+.1f} | {'yes' if flat else 'NO'} |")
    return rows, all_flat


def main() -> int:
    """Run the four sessions and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("trace", nargs="?", help="a large trace for random keys")
    parser.add_argument("--minutes", type=float, default=10.0, help="of all sessions together (10)")
    parser.add_argument("--ranks", help="a folder of ranks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--harness", type=Path, help="program in place of the recorder, where there is no torch")
    parser.add_argument("--only", choices=("keys", "ranks", "traces", "runs"), help="one session, for all minutes")
    parser.add_argument("--samples", type=Path, help="append every sample to this .csv file: session, then the counts")
    options = parser.parse_args()
    samples = {sample.name: str(sample.path) for sample in SAMPLES}
    large = os.path.abspath(options.trace) if options.trace else samples["train_gpt_stack_memory"]
    ranks = os.path.abspath(options.ranks) if options.ranks else samples["train_gpt_2ranks"]
    small = [path for path in samples.values() if os.path.isfile(path)]
    start = "import sys; from torchprof_tui.cli import main; sys.exit(main())"
    if options.harness is not None:
        harness = str(options.harness.resolve())
        start = (
            "from pathlib import Path; from torchprof_tui.runs import recording_request as request; "
            f"request.HARNESS = Path({harness!r}); {start}"
        )
    generator = random.Random(options.seed)
    plan: list[tuple[str, list[str], float, Callable[[Session], None]]] = [
        ("keys", [start, large], 0.4, lambda session: play_keys(session, generator)),
        ("ranks", [start, ranks], 0.2, lambda session: play_keys(session, generator)),
        ("traces", [start, small[0]], 0.2, lambda session: play_trace(session, small)),
        ("runs", [start, small[0]], 0.2, play_run),
    ]
    print("| session | count | first | last | slope per hour | flat |\n|---|---|---|---|---|---|", flush=True)
    all_flat = True
    for name, command, share, play in plan:
        if options.only not in (None, name):
            continue
        share = 1.0 if options.only else share
        folder = Path(tempfile.mkdtemp(prefix="torchprof-soak-"))
        session = Session(name, command, Workplace(folder), options.samples)
        (folder / "work" / "sleeper.py").write_text(SLEEPER)
        try:
            session.wait_for_lanes()
            session.run(share * options.minutes, play)
            session.close()
        finally:
            session.terminal.close() if session.alive and _is_running(session.terminal.pid) else None
            shutil.rmtree(folder, ignore_errors=True)
        rows, flat = format_rows(session)
        all_flat &= flat
        print("\n".join(rows), flush=True)
    return 0 if all_flat else 1


if __name__ == "__main__":
    sys.exit(main())
