"""Record jobs on several hosts: one rank, or all ranks of a job at the same iteration.

Kineto says no number of an iteration, so ranks are brought together by its rounding: each begins at the next multiple
of `m` iterations of its own count, which is the same in all ranks. A rank learns of a request when it asks, up to 5 s
later than another one. `m` iterations therefore take 12 s; where a multiple falls between two ranks' asking, the times
of the iterations differ by those 12 s, which is seen, and the request is given again right after a multiple.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchprof_attach.hosts import LOCAL, Host, HostError
from torchprof_tui.trace.core.records import record

if TYPE_CHECKING:
    from torchprof_tui.trace.sources.ssh_connections import SshConnections

DEFAULT_STEPS = 5
PROBE_STEPS = 3
TOGETHER_SECONDS = 12.0
"""Time of the iterations between two multiples: more than twice the time in which all ranks ask (5 s)."""

POLL_SECONDS = 5.0  # how often a profiler asks

MAX_TRIES = 3
LIST_SECONDS = 10.0
DEFAULT_TIMEOUT = 300
RECORDER = "torchprof_runs/harness.py"  # of `run`: the program that it runs is behind it
OPTIONS = ("shapes", "memory", "stacks", "flops", "modules")

REPEATED_WINDOW = "the time window is empty, as some CPU builds of torch write it; asked again by iterations"
EMPTY = "the trace is empty: the process ran nothing of torch meanwhile"
NO_ITERATIONS = "nothing counts iterations (no optimizer step, no profiler.step()): Kineto recorded half a second"
STAYS = "CUPTI stays loaded in the job: steps that the CPU limits are slower until it ends"
ENDS = "it replays CUDA graphs and has TEARDOWN_CUPTI=1: a second recording would end it, and is refused"
DIFFERENT = "the ranks began at different iterations: their counts differ"

Say = Callable[[str], object]


@record(slots=False)
class Wish:
    """What to record. `window_ms`: in place of `steps`. `options`: of OPTIONS. `timeout`: s to wait for a file."""

    steps: int = DEFAULT_STEPS
    window_ms: int | None = None
    options: tuple[str, ...] = ()
    timeout: int = DEFAULT_TIMEOUT
    inject: bool = False


@record(slots=False)
class Job:
    """A process on a host. `way`: how it can be recorded, "" if not; `why`: about that, one line. `step_seconds`: of
    its last recording."""

    host: str
    pid: int
    start: int
    rank: int | None = None
    world_size: int | None = None
    job: str = ""
    command: str = ""
    way: str = ""
    why: str = ""
    state: str = ""
    launcher: bool = False
    gpus: tuple[int, ...] = ()
    gpu_memory_bytes: int | None = None
    gpu_load_share: float | None = None
    step_seconds: float | None = None

    @property
    def key(self) -> tuple[str, int, int]:
        return self.host, self.pid, self.start

    @property
    def group(self) -> str:
        """Name the job that ranks of several hosts share; a process without ranks is a job of its own."""
        return self.job if self.rank is not None and not self.job.startswith("pid ") else f"{self.host} {self.job}"

    @property
    def label(self) -> str:
        where = "" if self.host == LOCAL else f"{self.host} "
        return f"{where}pid {self.pid}" if self.rank is None else f"{where}rank {self.rank}"

    @property
    def program(self) -> str:
        """Name the program: its script or module, without folders and suffix."""
        words = self.command.split(" ")
        scripts = [word for word in words[1:] if word.endswith(".py")]
        script = next((word for word in scripts if not word.endswith(RECORDER)), (scripts or [""])[0])
        module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
        return Path(script or module or words[0]).stem or "job"


@record(slots=False)
class Recorded:
    """What became of a request. `paths`: files here, [] where it failed for `problem`. `notes`: what to tell.
    `is_aligned`: it began at the same iteration as the other ranks."""

    job: Job
    way: str = ""
    paths: tuple[str, ...] = ()
    problem: str = ""
    notes: tuple[str, ...] = ()
    content: dict[str, Any] = field(default_factory=dict, compare=False)
    is_aligned: bool = False

    @property
    def steps(self) -> list[int]:
        return list(self.content.get("steps") or [])


@dataclass
class _Pace:
    """Of a job: seconds of an iteration, and when one that is a multiple of `multiple` ended."""

    step_seconds: float
    multiple: int = 1
    boundary: float = 0.0

    def choose_multiple(self) -> int:
        """Choose after how many iterations ranks may begin; the same as before where it still takes long enough."""
        if self.boundary and 0.7 < self.multiple * self.step_seconds / TOGETHER_SECONDS < 2.0:
            return self.multiple
        return max(math.ceil(TOGETHER_SECONDS / self.step_seconds), 1)

    def find_start(self, multiple: int) -> float:
        """Find when to give a request so that no multiple comes while ranks ask; 0.0 for now, or if none is known."""
        if self.multiple != multiple or not self.boundary:
            return 0.0
        now, period = time.time(), multiple * self.step_seconds
        since = (now - self.boundary) % period
        has_room = self.step_seconds < since < period - POLL_SECONDS * 1.2
        return 0.0 if has_room else now + period - since + self.step_seconds


class Session:
    """The hosts of one `attach`. A context manager; methods may be called on any thread."""

    def __init__(self, names: Sequence[str] = (LOCAL,)) -> None:
        self.names = tuple(names) or (LOCAL,)
        self.hosts: dict[str, Host] = {}
        self.problems: dict[str, str] = {}  # by host: why it cannot be used
        self._queues: dict[str, queue.Queue[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)
        self._paces: dict[str, _Pace] = {}  # by group
        self._step_seconds: dict[tuple[str, int, int], float] = {}
        self._told_of_cupti: set[tuple[str, int, int]] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            host.close()

    def connect(self, connections: SshConnections | None = None, allow_prompt: bool = False) -> None:
        """Start the agents. What cannot be reached is in `problems`, one line."""
        for name in self.names:
            host = Host(name, self._receive)
            try:
                if host.is_local:
                    host.start_local()
                else:
                    assert connections is not None
                    host.start_remote(connections, allow_prompt)
                self.hosts[name] = host
            except (HostError, OSError) as error:
                self.problems[name] = str(error)

    def _receive(self, host: Host, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "closed":
            self.problems.setdefault(host.name, "the connection is lost")
            for waiting in list(self._queues.values()):
                waiting.put({"event": "closed", "host": host.name})
            return
        key = f"{kind} {host.name}" if kind in ("jobs", "progress") else str(event.get("id"))
        waiting_for = self._queues.get(key)
        if waiting_for is not None:
            waiting_for.put(event)

    # -- listing -----------------------------------------------------------------------------------------------

    def list_jobs(self, inject: bool = False) -> list[Job]:
        """List the processes of all hosts."""
        jobs = []
        for name, each in self._ask_hosts("jobs", {name: {"do": "list", "inject": inject} for name in self.hosts}):
            known = self._step_seconds.get((name, each["pid"], each["start"]))
            jobs.append(Job(host=name, step_seconds=known, **{**each, "gpus": tuple(each.get("gpus", ()))}))
        return jobs

    def read_progress(self, jobs: Sequence[Job]) -> dict[tuple[str, int, int], tuple[float, str]]:
        """Read since when processes make no progress, s, and by what that is known; of those that still run.

        It is measured from the first call on, unless the recorder is in the process.
        """
        requests = {
            name: {"do": "progress", "jobs": pairs}
            for name in self.hosts
            if (pairs := [(job.pid, job.start) for job in jobs if job.host == name])
        }
        return {
            (name, each["pid"], each["start"]): (each["still_seconds"], each["evidence"])
            for name, each in self._ask_hosts("progress", requests)
        }

    def _ask_hosts(self, kind: str, requests: Mapping[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Ask hosts, and yield what each tells of its processes. Those that do not answer are in `problems`."""
        asked = []
        for name, request in requests.items():
            self._queues[f"{kind} {name}"] = queue.Queue()
            try:
                self.hosts[name].ask(**request)
                asked.append(name)
            except HostError as error:
                self.problems[name] = str(error)
        for name in asked:
            try:
                event = self._queues[f"{kind} {name}"].get(timeout=LIST_SECONDS)
            except queue.Empty:
                self.problems[name] = f"it did not answer for {LIST_SECONDS:.0f} s"
                continue
            for each in event.get("jobs", ()):
                yield name, each

    # -- recording ---------------------------------------------------------------------------------------------

    def record(self, jobs: Sequence[Job], wish: Wish, out: Path, say: Say = lambda _: None) -> list[Recorded]:
        """Record processes, several at the same iteration, and bring the files here. Blocks.

        `out`: a file for one process, else a folder, which is created. Raises OSError if it cannot be written.
        """
        folder = out.parent if len(jobs) == 1 else out
        os.makedirs(folder, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):  # told before the job is slowed for nothing
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        if len(jobs) == 1:
            return [self._record_one(jobs[0], wish, folder, out, say)]
        if wish.window_ms is None:
            return self._record_together(jobs, wish, folder, say)
        with ThreadPoolExecutor(len(jobs)) as pool:
            return list(pool.map(lambda job: self._record_one(job, wish, folder, folder / name_file(job), say), jobs))

    def _record_one(self, job: Job, wish: Wish, folder: Path, target: Path, say: Say) -> Recorded:
        done = self._ask(job, wish, folder, say)
        if not done.problem and wish.window_ms and done.content.get("is_empty"):
            self._discard(done)
            say(f"{job.label}: {REPEATED_WINDOW}")
            done = self._ask(job, replace(wish, window_ms=None), folder, say)
            done = replace(done, notes=(REPEATED_WINDOW, *done.notes))
        return self._fetch(done, [target])

    def _record_together(self, jobs: Sequence[Job], wish: Wish, folder: Path, say: Say) -> list[Recorded]:
        pace = self._paces.get(jobs[0].group)
        if pace is None:
            say(f"{jobs[0].label}: measuring how long an iteration takes")
            probe = self._ask(jobs[0], replace(wish, steps=PROBE_STEPS, options=()), folder, say)
            self._discard(probe)
            if probe.problem:
                problem = f"left out: {jobs[0].label} could not be recorded"
                return [probe, *(Recorded(job, problem=problem) for job in jobs[1:])]
            pace = _Pace(self._step_seconds.get(jobs[0].key) or TOGETHER_SECONDS)
            self._paces[jobs[0].group] = pace
        done: list[Recorded] = []
        for tries in range(1, MAX_TRIES + 1):
            multiple = pace.choose_multiple()
            begin = pace.find_start(multiple)
            say(f"{len(jobs)} ranks: each begins at the next multiple of {multiple:,} iterations")
            with ThreadPoolExecutor(len(jobs)) as pool:
                extra = {"multiple": multiple, "not_before": begin, "delay": max(begin - time.time(), 0.0)}
                done = list(pool.map(lambda job: self._ask(job, wish, folder, say, **extra), jobs))  # noqa: B023
            is_same = self._compare(done, pace, multiple)
            if is_same or tries == MAX_TRIES or not all(each.paths for each in done):
                break
            say("a multiple fell between their asking: asking again")
            for each in done:
                self._discard(each)
        if not is_same and all(each.steps for each in done):
            done = [replace(each, notes=(*each.notes, DIFFERENT)) for each in done]
        done = [replace(each, is_aligned=is_same) for each in done]
        with ThreadPoolExecutor(len(jobs)) as pool:
            return list(pool.map(lambda each: self._fetch(each, [folder / name_file(each.job)]), done))

    def _compare(self, done: Sequence[Recorded], pace: _Pace, multiple: int) -> bool:
        """Tell whether all began at the same iteration, and keep its time: half a multiple apart is another one."""
        known = [(each.job.host, each.steps[0] / 1e9) for each in done if each.steps]
        begins = [begin - self.hosts[host].clock_offset for host, begin in known]
        if not begins:
            return False
        pace.step_seconds = self._step_seconds.get(done[0].job.key) or pace.step_seconds
        pace.multiple, pace.boundary = multiple, max(begins) - pace.step_seconds
        return len(begins) == len(done) and max(begins) - min(begins) < multiple * pace.step_seconds / 2

    def _ask(self, job: Job, wish: Wish, folder: Path, say: Say, **extra: Any) -> Recorded:
        """Ask for a recording and wait for its end; the file stays with the agent."""
        if extra.get("not_before") and job.host in self.hosts:
            extra = {**extra, "not_before": extra["not_before"] + self.hosts[job.host].clock_offset}
        request = {
            "do": "record", "steps": wish.steps, "window_ms": wish.window_ms, "options": list(wish.options),
            "timeout": wish.timeout, "inject": wish.inject, **extra,
        }  # fmt: skip
        return self._wait_for(job, request, folder, say, lambda event: self._read_done(job, event, wish))

    def dump(self, job: Job, folder: Path) -> Recorded:
        """Take what a process waits for, and bring the files into a folder, which is created. Blocks."""
        os.makedirs(folder, exist_ok=True)

        def read(event: dict[str, Any]) -> Recorded:
            paths = tuple(each["path"] for each in event["files"])
            return Recorded(job, event["way"], paths, notes=tuple(event["notes"]))

        done = self._wait_for(job, {"do": "dump"}, folder, lambda _: None, read)
        return self._fetch(done, [folder / Path(path).name for path in done.paths])

    def _wait_for(
        self,
        job: Job,
        request: dict[str, Any],
        folder: Path,
        say: Say,
        read: Callable[[dict[str, Any]], Recorded],
    ) -> Recorded:
        """Give a request about a process to its host, and wait for its end; the files stay with the agent."""
        number = f"r{next(self._numbers)}"
        events = self._queues[number] = queue.Queue()
        way = job.way
        host = self.hosts.get(job.host)
        if host is None:
            return Recorded(job, problem=self.problems.get(job.host, "the host is not connected"))
        place = str(folder.absolute()) if host.is_local else None
        try:
            host.ask(id=number, pid=job.pid, start=job.start, folder=place, **request)
            while True:
                event = events.get()
                kind = event["event"]
                if kind == "phase":
                    way = event["way"]
                    waits = event["text"] or "waiting until its profiler asks, at most 5 s"
                    say(f"{job.label}: {'recording' if event['phase'] == 'given' else waits}")
                elif kind == "closed" and event["host"] == job.host:
                    return Recorded(job, way, problem=self.problems.get(job.host, "the connection is lost"))
                elif kind == "failed":
                    return Recorded(job, way, problem=str(event["reason"]))
                elif kind == "done":
                    return read(event)
        except HostError as error:
            return Recorded(job, way, problem=str(error))
        finally:
            del self._queues[number]

    def _read_done(self, job: Job, event: dict[str, Any], wish: Wish) -> Recorded:
        files = event["files"]
        content = files[0] if files else {}
        notes = []
        if content.get("is_empty"):
            notes.append(EMPTY)
        elif wish.window_ms is None and event["way"] in ("kineto", "dynolog") and not content.get("steps"):
            notes.append(NO_ITERATIONS)
        missing = [each for each in wish.options if "found" in content and each not in content["found"]]
        if missing and not content.get("is_empty"):
            notes.append(f"asked for, and not in the trace: {', '.join(missing)} (this way does not take it)")
        launches, graphs = content.get("launches") or (0, 0)
        if content.get("unloads"):
            notes += [ENDS] if graphs else []
        elif (launches or graphs) and job.key not in self._told_of_cupti:
            self._told_of_cupti.add(job.key)
            notes.append(STAYS if graphs else f"{STAYS} (started with TEARDOWN_CUPTI=1 they are not)")
        if content.get("step_seconds"):
            self._step_seconds[job.key] = content["step_seconds"]
        return Recorded(job, event["way"], tuple(each["path"] for each in files), "", tuple(notes), content)

    def _discard(self, done: Recorded) -> None:
        for path in done.paths:
            self.hosts[done.job.host].ask(do="forget", path=path)

    def _fetch(self, done: Recorded, targets: list[Path]) -> Recorded:
        """Bring the files of a recording here, and let the agent forget them; a server writes one per rank."""
        if not done.paths:
            return done
        fetched = []
        try:
            for at, path in enumerate(done.paths):
                target = targets[0].with_name(f"{targets[0].stem}-{Path(path).name}")
                target = targets[at] if at < len(targets) else target
                name = str(target)
                if path.endswith(".gz") and not name.endswith(".gz"):
                    name += ".gz"
                self.hosts[done.job.host].fetch(path, name)
                fetched.append(name)
        except (OSError, HostError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            return replace(done, paths=(), problem=f"{targets[0]}: {reason}")
        with contextlib.suppress(HostError):
            self._discard(done)
        return replace(done, paths=tuple(fetched))

    def cancel(self) -> None:
        """Cancel all requests that wait."""
        for number in [number for number in self._queues if number.startswith("r")]:
            for host in self.hosts.values():
                with contextlib.suppress(HostError):
                    host.ask(do="cancel", id=number)


def find_same_iterations(done: Sequence[Recorded]) -> bool | None:
    """Tell whether several ranks began at the same iteration; None where that cannot be told."""
    if len(done) < 2 or not all(each.steps for each in done):
        return None
    return all(each.is_aligned for each in done)


def name_file(job: Job) -> str:
    """Name the file of a rank in a folder of its job."""
    return f"rank{job.rank}.json" if job.rank is not None else f"{job.program}-{job.pid}.json"


def name_output(jobs: Sequence[Job], folder: Path) -> Path:
    """Name the file of a process, or the folder of several: program and time of day."""
    stem = f"{jobs[0].program}-{time.strftime('%Y%m%d-%H%M%S')}"
    if len(jobs) > 1:
        return folder / stem
    rank = f"pid{jobs[0].pid}" if jobs[0].rank is None else f"rank{jobs[0].rank}"
    return folder / f"{stem}-{rank}.json"
