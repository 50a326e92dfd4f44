"""Sketch the ranks of a job on a thread, and compare those that are there again and again while others come."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from textual.message import Message

from torchprof_fleet.analysis.fleet import LeftOut, NoRanksError
from torchprof_fleet.analysis.rank_sketch import RankSketch
from torchprof_fleet.analysis.report import FleetReport, compare_fleet
from torchprof_tui.trace.core.errors import format_error, is_expected
from torchprof_tui.trace.core.records import record

PROGRESS_SECONDS = 0.2  # seconds between reports of the number of ranks

MIN_COMPARE_SECONDS, COMPARE_FACTOR = 0.5, 8.0
"""Ranks that are there are compared after this time at the earliest, and after so many times what the last comparison
took: comparing takes an eighth of the time that sketching takes, at most."""

Sketch = Callable[[Callable[[RankSketch | None, int, int], None], Callable[[], bool]], Sequence[LeftOut]]
"""Sketches all ranks, or until the second function returns True. Calls the first with each sketch (None for a file
without), the number of files so far and of all. Returns the files that could not be used."""


@record(slots=False)
class FleetSource:
    """The files of a job. `label`: what the user called them; `file_count`: how many there are."""

    label: str
    file_count: int
    sketch: Sketch


@dataclass
class SketchProgress(Message):
    """So many files of all are sketched; `time_left`: seconds, None while it is unknown."""

    done: int
    total: int
    time_left: float | None


@dataclass
class FleetCompared(Message):
    """The ranks that are there were compared. `is_last`: all that will come; `is_cancelled`: the user stopped it.

    `report` is None where no file is of a rank, for `problem`.
    """

    report: FleetReport | None
    is_last: bool
    is_cancelled: bool = False
    problem: str = ""


@dataclass
class FleetSketcher:
    """Runs on its own thread and posts messages with `post`; `cancel` ends it within a moment."""

    source: FleetSource
    post: Callable[[Message], object]
    _sketches: list[RankSketch] = field(default_factory=list)
    _cancelled: threading.Event = field(default_factory=threading.Event)
    _started: float = 0.0
    _reported: float = 0.0
    _compared: float = 0.0
    _compare_seconds: float = 0.0
    _done_at_start: int = 0

    def start(self) -> None:
        self._started = self._compared = time.monotonic()
        threading.Thread(target=self._run, name="fleet", daemon=True).start()

    def cancel(self) -> None:
        self._cancelled.set()

    def _run(self) -> None:
        try:
            lost = self.source.sketch(self._receive, self._cancelled.is_set)
            self._compare(lost, is_last=True)
        except Exception as error:  # reported on the screen: nothing else looks at this thread
            line = format_error(error) if is_expected(error) else f"{type(error).__name__}: {error}"
            self.post(FleetCompared(None, True, problem=" ".join(line.split())))

    def _receive(self, sketch: RankSketch | None, done: int, total: int) -> None:
        if sketch is not None:
            self._sketches.append(sketch)
        now = time.monotonic()
        if now - self._reported >= PROGRESS_SECONDS or done == total:
            self._reported = now
            passed, new = now - self._started, done - self._done_at_start
            time_left = passed * (total - done) / new if new > 0 else None
            if passed < 1.0 or done < 2:  # sketches that were read from the cache in the first moment do not count
                time_left = None
                self._done_at_start, self._started = (done, now) if passed >= 1.0 else (done, self._started)
            self.post(SketchProgress(done, total, time_left))
        if now - self._compared >= max(MIN_COMPARE_SECONDS, COMPARE_FACTOR * self._compare_seconds) and done < total:
            self._compare((), is_last=False)

    def _compare(self, lost: Sequence[LeftOut], is_last: bool) -> None:
        begin = time.monotonic()
        is_cancelled = self._cancelled.is_set()
        try:
            self.post(FleetCompared(compare_fleet(self._sketches, lost), is_last, is_cancelled))
        except NoRanksError as error:
            problem = "cancelled" if is_cancelled else str(NoRanksError((*lost, *error.left_out)))
            if is_last:
                self.post(FleetCompared(None, True, is_cancelled, problem))
        self._compared = time.monotonic()
        self._compare_seconds = self._compared - begin
