"""The long run of hostile sessions: `python -m tests.hostile --minutes 10`.

New cases are drawn (`inputs.py`), guided towards sessions that print much and see many screens, and played
(`commands.py`, `screens.py`, `terminals.py`) until the time is up. A finding is made as small as it can be in a minute,
printed as a literal for `corpus.py`, and written to `--findings`. A case that hangs ends the run with the stacks of all
threads; it is in `--findings`, too.

`--walk 100000` walks at random through the screens instead, in a terminal, over ten traces (`walk.py`).
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import random
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, seed, settings, target
from hypothesis import strategies as st
from hypothesis.errors import HypothesisWarning
from hypothesis.internal.conjecture import engine

from tests.hostile.cases import CommandCase, ScreenCase, TerminalCase
from tests.hostile.commands import run_command_case
from tests.hostile.inputs import command_cases, screen_cases, terminal_cases
from tests.hostile.screens import play_screen_case
from tests.hostile.terminals import run_terminal_case
from tests.hostile.walk import run_walks

HANG_SECONDS = 600
"""A case that takes longer hangs, where no bound of its own has ended it."""

SHRINK_SECONDS = 60

ROUND = {"commands": 60, "screens": 15, "terminals": 2}
"""Cases of each kind in one round; they take about the same time."""

Case = CommandCase | ScreenCase | TerminalCase


def play(case: Case) -> float:
    """Play one case; return how much it reached. Raises FindingError, or an exception of the program."""
    if isinstance(case, CommandCase):
        return float(len(run_command_case(case).out.splitlines()))
    if isinstance(case, ScreenCase):
        return float(len(set(play_screen_case(case))))
    return float(len(set(run_terminal_case(case)[1])))


class Search:
    """The rounds of one run, and what they found."""

    def __init__(self, findings: Path, deadline: float) -> None:
        self.findings = findings
        self.deadline = deadline
        self.played = dict.fromkeys(ROUND, 0)
        self.kinds: dict[str, int] = {}  # findings by what they say
        self._last: tuple[Case, BaseException] | None = None

    def run_round(self, kind: str, cases: st.SearchStrategy[Any], number: int) -> None:
        """Play the cases of one round, until its first finding."""

        @seed(number)
        @settings(
            max_examples=ROUND[kind],
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        )
        @given(case=cases)
        def play_round(case: Case) -> None:
            if time.monotonic() > self.deadline and self._last is None:
                return
            self._current_file().write_text(repr(case))
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            try:
                target(play(case))
                self.played[kind] += 1
            except Exception as error:
                self._last = case, error  # of a finding that is made smaller, the last one is the smallest
                raise
            finally:
                faulthandler.cancel_dump_traceback_later()

        self._last = None
        try:
            play_round()
        except Exception:
            if self._last is None:
                raise  # a fault of the test itself
            self._report(*self._last)
        self._current_file().unlink(missing_ok=True)

    def _report(self, case: Case, error: BaseException) -> None:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        kind = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if self.kinds[kind] > 1:
            return
        text = "".join(traceback.format_exception(error))
        print(f"{kind}: {str(error)[:300]}\n{repr(case)[:2000]}", flush=True)
        name = hashlib.sha256(kind.encode()).hexdigest()[:12]
        (self.findings / f"hostile-{name}.txt").write_text(f"{case!r}\n\n{text}")

    def _current_file(self) -> Path:
        return self.findings / "hostile-current.txt"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"))
    parser.add_argument("--only", choices=sorted(ROUND), default=None)
    parser.add_argument("--walk", type=int, default=0, metavar="EVENTS")
    options = parser.parse_args()
    findings: Path = options.findings.absolute()
    findings.mkdir(exist_ok=True)
    engine.MAX_SHRINKING_SECONDS = SHRINK_SECONDS
    warnings.simplefilter("ignore", HypothesisWarning)  # large literals
    number = options.seed if options.seed is not None else int(time.time())
    print(f"seed {number}", flush=True)
    if options.walk:
        return run_walks(options.walk, number, findings)
    rng = random.Random(number)
    search = Search(findings, time.monotonic() + 60 * options.minutes)
    strategies: dict[str, Callable[[], st.SearchStrategy[Any]]] = {
        "commands": command_cases,
        "screens": screen_cases,
        "terminals": terminal_cases,
    }
    while time.monotonic() < search.deadline:
        for kind, create in strategies.items():
            if options.only in (None, kind) and time.monotonic() < search.deadline:
                search.run_round(kind, create(), rng.randrange(2**32))
                print(f"played {search.played}, findings {search.kinds}", flush=True)
    return int(bool(search.kinds))


if __name__ == "__main__":
    sys.exit(main())
