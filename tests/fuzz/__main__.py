"""The long fuzz run: `python -m tests.fuzz --minutes 15`.

Files of the corpus are damaged (`mutate.py`) and opened in every way (`oracle.py`). What the program says of a file it
was damaged into (which problems, which entries are not drawn) guides the search: a file that makes it say something
new is damaged further. Findings are written to `--findings`, one file each, with the line that says what is wrong.
A worker process that hangs or outgrows its memory is a finding, too.
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
from multiprocessing.connection import Connection
from pathlib import Path

from tests.fuzz.mutate import mutated
from tests.fuzz.oracle import FindingError, check

CORPUS = Path(__file__).parent / "corpus"

SECONDS = 20
"""Of the processor, for a file of at most some 60 KB: hundreds of times what the slowest one needs."""

MEMORY = 4 << 30
"""Bytes of address space for one; the libraries take half of one GB."""

_MOST_NEW = 3000
"""Files beside the corpus that are damaged further; old ones make room."""

_REPORT_SECONDS = 30


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
    parser.add_argument("files", nargs="*", type=Path, help="open these only, and say what is wrong with them")
    options = parser.parse_args()
    if options.files:
        for path in options.files:
            wrong, said = fault(path.read_bytes())
            print(f"{path}: {wrong or 'no fault'} {said}")
        return 0
    seed = options.seed if options.seed is not None else int(time.time())
    print(f"seed {seed}", flush=True)
    return int(_run(random.Random(seed), time.monotonic() + 60 * options.minutes, options.findings) > 0)


def _run(rng: random.Random, until: float, folder: Path) -> int:
    """How many different findings there were."""
    seeds, new = corpus(), list[bytes]()
    said: set[tuple[str, ...]] = set()
    found: dict[str, int] = {}
    worker = _Worker()
    tried, told = 0, time.monotonic()
    while time.monotonic() < until:
        data = mutated(rng, new if new and rng.random() < 0.6 else seeds)
        wrong, words = worker.ask(data)
        tried += 1
        if wrong:
            kind = wrong.split(":")[0]
            found[kind] = found.get(kind, 0) + 1
            if found[kind] <= 3:
                print(wrong, flush=True)
                folder.mkdir(exist_ok=True)
                name = hashlib.sha256(data).hexdigest()[:12]
                (folder / name).write_bytes(data)
                (folder / f"{name}.txt").write_text(wrong)
        elif words not in said:
            said.add(words)
            new.append(data)
            del new[:-_MOST_NEW]
        if time.monotonic() - told > _REPORT_SECONDS:
            told = time.monotonic()
            print(f"{tried:,} files, {len(said):,} kinds of answers, {len(found)} findings {found}", flush=True)
    print(f"{tried:,} files, {len(said):,} kinds of answers, {len(found)} findings {found}")
    worker.end()
    return len(found)


class _Worker:
    """A process that checks files, started again when one has killed it."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, data: bytes) -> tuple[str, tuple[str, ...]]:
        self._pipe.send_bytes(data)
        try:
            answer: tuple[str, tuple[str, ...]] = self._pipe.recv()
            return answer
        except EOFError:
            self._process.join()
            code = self._process.exitcode
            self._start()
            return f"killed by {signal.Signals(-code).name if code and code < 0 else code}", ()

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
        answer = fault(data)
        signal.setitimer(signal.ITIMER_PROF, 0)
        pipe.send(answer)


if __name__ == "__main__":
    sys.exit(main())
