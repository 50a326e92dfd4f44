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

from tests.fuzz.coverage import arcs
from tests.fuzz.minimise import minimised
from tests.fuzz.mutate import mutated
from tests.fuzz.oracle import FindingError, check

CORPUS = Path(__file__).parent / "corpus"

SECONDS = 20
"""Of the processor, for a file of at most some 60 KB: dozens of times what the slowest one needs, watched as it is."""

MEMORY = 4 << 30
"""Bytes of address space for one; the libraries take half of one GB."""

_MOST_NEW = 3000
"""Files beside the corpus that are damaged further; old ones make room."""

_REPORT_SECONDS = 30

_MINIMISE_SECONDS = 60
"""For each finding; a hang takes SECONDS whenever it is shown again."""

_NEWEST = 40
"""Files that reached something new are damaged at once and often: what is behind it is mostly near."""


def corpus() -> list[bytes]:
    return [path.read_bytes() for path in sorted(CORPUS.iterdir())]


def fault(data: bytes) -> tuple[str, tuple[str, ...]]:
    """What is wrong with how the program opens this ("" for nothing), and what it said of the file."""
    try:
        return "", check(data)
    except FindingError as finding:
        return f"Finding: {finding}", ()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return f"{type(error).__name__} at {where}: {' '.join(str(error).split())[:200]}", ()


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
            wrong, said = fault(path.read_bytes())
            print(f"{path}: {wrong or 'no fault'} {said}")
        return 0
    seed = options.seed if options.seed is not None else int(time.time())
    print(f"seed {seed}", flush=True)
    until = time.monotonic() + 60 * options.minutes
    return int(run(random.Random(seed), until, options.findings, options.corpus) > 0)


@dataclass(frozen=True, slots=True)
class Answer:
    """What is wrong ("" for nothing), what the program said of the file, and the arcs that it took."""

    wrong: str
    said: tuple[str, ...] = ()
    arcs: frozenset[int] = frozenset()

    @property
    def kind(self) -> str:
        return self.wrong.split(":")[0] + (self.wrong.split(":")[1] if self.wrong.startswith("Finding") else "")


def run(rng: random.Random, until: float, findings: Path, kept: Path) -> int:
    """How many different findings there were."""
    worker = _Worker()
    search = _Search()
    seeds = corpus()
    earlier = [path.read_bytes() for path in sorted(kept.iterdir())] if kept.is_dir() else []
    found: dict[str, int] = {}
    tried, told = 0, time.monotonic()

    def report() -> None:
        print(
            f"{tried:,} files, {len(search.arcs):,} arcs, {len(search.said):,} kinds of answers, "
            f"{len(search.new):,} files that reached something new, {len(found)} findings {found}",
            flush=True,
        )

    for data in seeds:
        search.is_new(worker.ask(data))
    while time.monotonic() < until:
        data = earlier.pop() if earlier else mutated(rng, search.choose(rng, seeds))
        answer = worker.ask(data)
        tried += 1
        if answer.wrong:
            found[answer.kind] = found.get(answer.kind, 0) + 1
            if found[answer.kind] == 1:
                print(answer.wrong, flush=True)
                _keep(findings, _smallest(worker, data, answer), answer.wrong)
        elif search.is_new(answer):
            search.add(data)
            _keep(kept, data)
        if time.monotonic() - told > _REPORT_SECONDS:
            told = time.monotonic()
            report()
    report()
    worker.end()
    return len(found)


class _Search:
    """What was reached so far, and the files that did."""

    def __init__(self) -> None:
        self.arcs: set[int] = set()
        self.said: set[tuple[str, ...]] = set()
        self.new: list[bytes] = []

    def is_new(self, answer: Answer) -> bool:
        fresh = not answer.arcs <= self.arcs or answer.said not in self.said
        self.arcs |= answer.arcs
        self.said.add(answer.said)
        return fresh

    def add(self, data: bytes) -> None:
        self.new.append(data)
        del self.new[:-_MOST_NEW]

    def choose(self, rng: random.Random, seeds: list[bytes]) -> list[bytes]:
        """Of which files one is damaged next."""
        draw = rng.random()
        if not self.new or draw < 0.3:
            return seeds
        return self.new[-_NEWEST:] if draw < 0.6 else self.new


def _keep(folder: Path, data: bytes, wrong: str = "") -> None:
    folder.mkdir(exist_ok=True)
    name = hashlib.sha256(data).hexdigest()[:12]
    (folder / name).write_bytes(data)
    if wrong:
        (folder / f"{name}.txt").write_text(wrong)


def _smallest(worker: _Worker, data: bytes, answer: Answer) -> bytes:
    until = time.monotonic() + _MINIMISE_SECONDS
    return minimised(data, lambda less: time.monotonic() < until and worker.ask(less).kind == answer.kind)


class _Worker:
    """A process that checks files, started again when one has killed it."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, data: bytes) -> Answer:
        self._pipe.send_bytes(data)
        try:
            return Answer(*self._pipe.recv())
        except EOFError:
            self._process.join()
            code = self._process.exitcode
            self._start()
            return Answer(f"killed by {signal.Signals(-code).name if code and code < 0 else code}")

    def end(self) -> None:
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
        with arcs() as taken:
            answer = fault(data)
        signal.setitimer(signal.ITIMER_PROF, 0)
        pipe.send((*answer, frozenset(taken)))


if __name__ == "__main__":
    sys.exit(main())
