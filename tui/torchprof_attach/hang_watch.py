"""Watch running jobs: where a rank makes no progress for N seconds, dump the stacks of its job."""

from __future__ import annotations

import importlib
import itertools
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from torchprof_attach.session import Job, Recorded, Say, Session
from torchprof_tui.trace.core.records import record

MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.2, 10.0


@record(slots=False)
class Dumped:
    """What was taken of a job. `evidence`: why it was. `ranks`: what became of each. `sentence`: what `hang` reads from
    it, or why nothing."""

    evidence: str
    folder: Path
    ranks: tuple[Recorded, ...]
    sentence: str

    @property
    def has_files(self) -> bool:
        return any(each.paths for each in self.ranks)

    @property
    def command(self) -> str:
        """The command that opens it; "" where there is nothing."""
        return shlex.join(["torchprof-tui", "hang", str(self.folder)]) if self.has_files else ""

    @property
    def line(self) -> str:
        """What `hang` reads from it, and how to open it."""
        return f"{self.sentence}: {self.command}" if self.command else self.sentence

    @property
    def problems(self) -> list[str]:
        """List which ranks gave less than all, and why."""
        found = [f"{each.job.label}: {each.problem}" for each in self.ranks if each.problem]
        found += [f"{each.job.label}: stacks are missing: {note}" for each in self.ranks for note in each.notes]
        world = max((each.job.world_size or 0 for each in self.ranks), default=0)
        if len(self.ranks) < world:
            found.append(f"{len(self.ranks)} of {world} ranks run on the hosts that were named")
        return found


class HangWatch:
    """Dumps a job once it makes no progress for `seconds`, and again where that happens after it went on.

    `folder`: each dump gets a folder of its own in it.
    """

    def __init__(self, session: Session, seconds: float, folder: Path, say: Say = lambda _: None) -> None:
        self.seconds = seconds
        self._session, self._folder, self._say = session, folder, say
        self._dumped: set[str] = set()  # groups that have made no progress since

    def watch(self, list_jobs: Callable[[], Sequence[Job]], stop: threading.Event) -> Iterator[Dumped]:
        """Look again and again, until `stop` is set or none of the processes runs any more."""
        while not stop.is_set():
            jobs = list_jobs()
            progress = self._session.read_progress(jobs)
            if jobs and not progress:
                return
            for group in dict.fromkeys(job.group for job in jobs):
                ranks = [job for job in jobs if job.group == group]
                still = max((progress[job.key] for job in ranks if job.key in progress), default=(0.0, ""))
                if still[0] < self.seconds:
                    self._dumped.discard(group)
                elif group not in self._dumped:
                    self._dumped.add(group)
                    label = next(job.label for job in ranks if progress.get(job.key) == still)
                    yield self.dump(ranks, f"{label}: {still[1]} for {still[0]:.0f} s")
            stop.wait(min(max(self.seconds / 10, MIN_POLL_SECONDS), MAX_POLL_SECONDS))

    def dump(self, ranks: Sequence[Job], evidence: str) -> Dumped:
        """Take what the ranks of a job wait for. Blocks."""
        self._say(f"{evidence}: taking what {len(ranks)} rank{'s'[: len(ranks) > 1]} of {ranks[0].program} wait for")
        stem = f"{ranks[0].program}-{time.strftime('%Y%m%d-%H%M%S')}-hang"
        names = (f"{stem}{suffix}" for suffix in itertools.chain([""], (f"-{number}" for number in itertools.count(2))))
        folder = next(self._folder / name for name in names if not (self._folder / name).exists())
        with ThreadPoolExecutor(len(ranks)) as pool:
            done = tuple(pool.map(lambda job: self._session.dump(job, folder), ranks))
        if not any(each.paths for each in done):
            folder.rmdir()
            return Dumped(evidence, folder, done, "nothing could be taken")
        # an extension of its own, which imports the program
        hang = importlib.import_module("torchprof_hang.command.main")
        try:
            sentence = str(hang.explain_hang([str(folder)]).sentence)
        except Exception as error:  # the files are there: that must be told
            sentence = f"hang cannot read it: {' '.join(str(error).split())}"
        return Dumped(evidence, folder, done, sentence)


def choose_ranks(jobs: Sequence[Job]) -> list[Job]:
    """Choose what is worth watching: ranks; any other process that waits may wait for a person."""
    return [job for job in jobs if job.rank is not None and not job.launcher]
