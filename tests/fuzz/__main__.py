"""The long fuzz run: `python -m tests.fuzz --minutes 15`.

Files of the corpus are damaged (`mutate.py`) and opened in every way (`oracle.py`). Which lines of the reader a file
makes run one after the other (`coverage.py`), and what the program says of it (which problems, which entries are not
drawn), guides the search: a file that reaches something new is damaged further, and kept in `--corpus` for the next
run. Findings are written to `--findings`, made as small as they can be (`minimise.py`), with the line that says what is
wrong. A worker process that hangs or outgrows its memory is a finding, too.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import random
import resource
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from tests.fuzz.coverage import record_arcs
from tests.fuzz.minimise import minimise
from tests.fuzz.mutate import mutate
from tests.fuzz.oracle import FindingError, check

CORPUS = Path(__file__).parent / "corpus"

SECONDS = 20
"""Processor time for a file of at most 60 KB: dozens of times that of the slowest one, coverage included."""

MEMORY = 4 << 30
"""Address space of a worker in bytes; the libraries alone take half a GB."""

_MOST_NEW = 3000
"""Most files besides the corpus that are mutated further; the oldest are dropped."""

_REPORT_SECONDS = 30

_MINIMISE_SECONDS = 60
"""For each finding; reproducing a hang takes SECONDS each time."""

_NEWEST = 40
"""The newest files that reached new arcs, which are mutated most often: further new arcs are mostly near them."""


def load_corpus() -> list[bytes]:
    return [path.read_bytes() for path in sorted(CORPUS.iterdir())]


def find_fault(data: bytes) -> tuple[str, tuple[str, ...]]:
    """Open a file. Returns the program's fault ("" for none), and what the program reported about the file."""
    try:
        return "", check(data)
    except FindingError as finding:
        return f"Finding: {finding}", ()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        frame = traceback.extract_tb(error.__traceback__)[-1]
        line = f"{Path(frame.filename).name}:{frame.lineno}"
        return f"{type(error).__name__} at {line}: {' '.join(str(error).split())[:200]}", ()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"))
    parser.add_argument("--corpus", type=Path, default=Path("fuzz-corpus"), help="files that reached something new")
    parser.add_argument("files", nargs="*", type=Path, help="open these only, and say what is wrong with them")
    options = parser.parse_args()
    if options.files:
        for path in options.files:
            fault, report = find_fault(path.read_bytes())
            print(f"{path}: {fault or 'no fault'} {report}")
        return 0
    seed = options.seed if options.seed is not None else int(time.time())
    print(f"seed {seed}", flush=True)
    deadline = time.monotonic() + 60 * options.minutes
    return int(run(random.Random(seed), deadline, options.findings, options.corpus) > 0)


@dataclass(frozen=True, slots=True)
class Answer:
    """The program's fault ("" for none), what it reported about the file, and the arcs that it took."""

    fault: str
    report: tuple[str, ...] = ()
    arcs: frozenset[int] = frozenset()

    @property
    def kind(self) -> str:
        """The fault without its details, to tell findings apart."""
        return self.fault.split(":")[0] + (self.fault.split(":")[1] if self.fault.startswith("Finding") else "")


def run(rng: random.Random, deadline: float, findings: Path, kept: Path) -> int:
    """Search until `deadline`, by the monotonic clock. Returns the number of different findings."""
    worker = _Worker()
    search = _Search()
    seeds = load_corpus()
    earlier = [path.read_bytes() for path in sorted(kept.iterdir())] if kept.is_dir() else []
    counts: dict[str, int] = {}
    tried, last_report = 0, time.monotonic()

    def report() -> None:
        print(
            f"{tried:,} files, {len(search.arcs):,} arcs, {len(search.reports):,} kinds of answers, "
            f"{len(search.new):,} files that reached something new, {len(counts)} findings {counts}",
            flush=True,
        )

    for data in seeds:
        search.add_answer(worker.check(data))
    while time.monotonic() < deadline:
        data = earlier.pop() if earlier else mutate(rng, search.choose(rng, seeds))
        answer = worker.check(data)
        tried += 1
        if answer.fault:
            counts[answer.kind] = counts.get(answer.kind, 0) + 1
            if counts[answer.kind] == 1:
                print(answer.fault, flush=True)
                _write_file(findings, _minimise(worker, data, answer), answer.fault)
        elif search.add_answer(answer):
            search.add_file(data)
            _write_file(kept, data)
        if time.monotonic() - last_report > _REPORT_SECONDS:
            last_report = time.monotonic()
            report()
    report()
    worker.close()
    return len(counts)


class _Search:
    """The arcs and reports that were reached so far, and the files that reached them first."""

    def __init__(self) -> None:
        self.arcs: set[int] = set()
        self.reports: set[tuple[str, ...]] = set()
        self.new: list[bytes] = []

    def add_answer(self, answer: Answer) -> bool:
        """Add arcs and report. Returns whether any of them is new."""
        is_new = not answer.arcs <= self.arcs or answer.report not in self.reports
        self.arcs |= answer.arcs
        self.reports.add(answer.report)
        return is_new

    def add_file(self, data: bytes) -> None:
        self.new.append(data)
        del self.new[:-_MOST_NEW]

    def choose(self, rng: random.Random, seeds: list[bytes]) -> list[bytes]:
        """Choose the files of which one is mutated next."""
        draw = rng.random()
        if not self.new or draw < 0.3:
            return seeds
        return self.new[-_NEWEST:] if draw < 0.6 else self.new


def _write_file(folder: Path, data: bytes, fault: str = "") -> None:
    folder.mkdir(exist_ok=True)
    name = hashlib.sha256(data).hexdigest()[:12]
    (folder / name).write_bytes(data)
    if fault:
        (folder / f"{name}.txt").write_text(fault)


def _minimise(worker: _Worker, data: bytes, answer: Answer) -> bytes:
    deadline = time.monotonic() + _MINIMISE_SECONDS
    return minimise(data, lambda smaller: time.monotonic() < deadline and worker.check(smaller).kind == answer.kind)


class _Worker:
    """A process that checks files; it is started again after a file has killed it."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._pipe, worker_pipe = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=_serve, args=(worker_pipe,), daemon=True)
        self._process.start()
        worker_pipe.close()

    def check(self, data: bytes) -> Answer:
        self._pipe.send_bytes(data)
        try:
            return Answer(*self._pipe.recv())
        except EOFError:
            self._process.join()
            code = self._process.exitcode
            self._start()
            return Answer(f"killed by {signal.Signals(-code).name if code and code < 0 else code}")

    def close(self) -> None:
        self._pipe.close()
        self._process.terminate()


def _serve(pipe: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    while True:
        try:
            data = pipe.recv_bytes()
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # a hang ends the process by SIGPROF
        with record_arcs() as taken:
            answer = find_fault(data)
        signal.setitimer(signal.ITIMER_PROF, 0)
        pipe.send((*answer, frozenset(taken)))


if __name__ == "__main__":
    sys.exit(main())
