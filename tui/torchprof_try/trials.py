"""Run a program again and again, as it is and with remedies, and yield the table as it fills.

One process at a time: what ran beside it would be measured, too. The second records a trace, the others run without the
profiler: baseline, two remedies, baseline, and so on, then the winners again, the best together, and the baseline once
more.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torchprof_try.estimates import Saving, compare_losses, estimate_saving
from torchprof_try.patches import Places
from torchprof_try.program_process import ProgramProcess, read_journal, remove_created, split_command
from torchprof_try.remedies import BY_NAME, TOGETHER, Evidence, Remedy, choose_remedies, combine, predict_saving
from torchprof_tui.api.checks import check_range
from torchprof_tui.runs.history import read_request
from torchprof_tui.runs.recording_request import HARNESS, WORKLOADS
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.loading.load_in_process import load_trace

BASELINE = "baseline"
BETWEEN = 2  # remedies from one run of the baseline to the next

NOTABLE = 0.05
"""Share of a step: the least that is repeated where it is not shown yet, and the least time of the garbage collector
that suggests a remedy."""

MAX_UNDECIDED = 2  # remedies that are repeated beside the winners: those that save most where it is not shown yet
SPEC_VARIABLE = "TORCHPROF_TRIAL"  # environment variable of the recorder: the spec of a trial that is recorded


@record
class TrialRequest:
    """What is tried. `command`: the program with its arguments, as `run` takes it. Times in seconds.

    `python`: the interpreter, where the user names one beside the command. `step`: what ends a step, as `run --step`
    takes it. `limit`: of each process. `max_seconds`, `max_runs`: of all; what is begun is ended. `cwd`: the folder of
    the program, "" for the current one. `finding`: only remedies against it, "" for all that the trace suggests.
    """

    command: tuple[str, ...]
    python: str | None = None
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    everything: bool = False
    steps: int = 30
    warmup: int = 5
    limit: float = 300.0
    repeat: int = 1
    seed: int = 0
    step: str = "auto"
    allow_writes: bool = False
    keep: str | None = None
    max_seconds: float = math.inf
    max_runs: float = math.inf
    cwd: str = ""
    finding: str = ""


@record
class TrialRow:
    """One line of the table. `state`: waiting, running, measured, failed, or unused; `why`: of the last two.

    `step`: seconds, the median over blocks of steps; `memory`: peak in bytes. `predicted`: a share of the step,
    forecast for the finding `predicted_by`.
    """

    name: str
    says: str = ""
    patch: str = ""
    state: str = "waiting"
    why: str = ""
    predicted: float | None = None
    predicted_by: str = ""
    saving: Saving | None = None
    step: float | None = None
    memory: int | None = None
    loss: str = ""
    parts: tuple[str, ...] = ()


@record
class TrialProgress:
    """What runs `now`, how many processes are `done` of about `total` (0: not known yet), and for how long still."""

    now: str
    done: int
    total: int
    seconds_left: float | None

    @property
    def line(self) -> str:
        """Format it for people, in one line."""
        if not self.total:
            return f"{self.now}, run {self.done + 1}"
        left, when = self.seconds_left, ""
        if left is not None:
            when = f", about {max(round(left), 1)} s left" if left < 100 else f", about {left / 60:.0f} min left"
        return f"{self.now}, run {min(self.done + 1, self.total)} of {self.total}{when}"


@dataclass(slots=True)
class Trials:
    """The table of a program: `rows` change while `run` goes on. Close it after the run, which removes its files."""

    request: TrialRequest
    rows: list[TrialRow] = field(default_factory=list)
    evidence: Evidence | None = None
    device: str = ""
    torch: str = ""
    trace: str | None = None
    is_complete: bool = False
    places: Places = field(default_factory=Places)
    _times: dict[str, list[list[float]]] = field(default_factory=dict)
    _losses: dict[str, list[list[float]]] = field(default_factory=dict)
    _process: ProgramProcess = field(default_factory=ProgramProcess)
    _folder: str = ""
    _recordings: dict[str, str] = field(default_factory=dict)
    _has_gpu: bool = False
    _gc_share: float = 0.0
    _now: str = ""
    _done: int = 0
    _planned: int = 0
    _began: float = 0.0
    _started: float = 0.0
    _seconds: list[float] = field(default_factory=list)

    def run(self) -> Generator[str, None, None]:
        """Run everything and yield one line of progress after each change of the rows.

        Close the iterator to end early, or call `stop` from another thread: the processes are ended, and the rows stay
        as they are. Raises TraceError, TrialsStopped.
        """
        self._folder, self._started = tempfile.mkdtemp(prefix="torchprof-try-"), time.monotonic()
        self.rows = [TrialRow(BASELINE, "the program as it is")]
        yield from self._try(BASELINE, ())  # first: it finds out whether the program can be repeated
        if self._find(BASELINE).state != "measured":
            raise TraceError(f"the program cannot be tried: {self._find(BASELINE).why}")
        self._begin("recording a trace")
        yield self.progress.line
        self.evidence = self._check(self._record(BASELINE, ()))
        self._end()
        yield from self._try(BASELINE, ())
        remedies = self._choose()
        self._planned = self._done + len(remedies) + len(remedies) // BETWEEN + 1
        yield f"{len(remedies)} remedies to try"
        yield from self._try_all(remedies)

    def record(self, name: str) -> tuple[str, str]:
        """Record the program with the remedies of a row, once `run` has ended. Returns the paths without and with them.

        Raises TraceError, TrialsStopped.
        """
        if BASELINE not in self._recordings:
            raise TraceError("the program as it is was not recorded")
        if name not in self._recordings:
            self._process = ProgramProcess()
            self._record(name, [BY_NAME[each] for each in self._find(name).parts or (name,)])
        return self._recordings[BASELINE], self._recordings[name]

    def stop(self) -> None:
        """Let `run`, in another thread, end its process and raise TrialsStopped."""
        self._process.stop()

    def close(self) -> None:
        """Remove the files of the trials, with the recordings. `run` must have ended."""
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def progress(self) -> TrialProgress:
        """What runs now, and for how long still."""
        seconds = self._seconds
        left = None
        if self._planned and seconds:
            mean = sum(seconds) / len(seconds)
            running = time.monotonic() - self._began if self._now else 0.0
            left = max(mean - running, 0.0) + mean * max(self._planned - self._done - 1, 0)
        return TrialProgress(self._now, self._done, self._planned, left)

    def _begin(self, now: str) -> None:
        self._now, self._began = now, time.monotonic()

    def _end(self) -> None:
        self._seconds.append(time.monotonic() - self._began)
        self._done += 1

    def _choose(self) -> list[Remedy]:
        request, evidence = self.request, self.evidence
        assert evidence is not None
        everything = request.everything or bool(request.finding)
        remedies = [
            remedy
            for remedy in choose_remedies(evidence, request.only, request.without, everything)
            if request.finding in ("", *remedy.patterns)
        ]
        for remedy in remedies:
            self.places.suggested[remedy.name] = [
                place for pattern in remedy.patterns for place in evidence.places.get(pattern, ())
            ]
            finding, predicted = predict_saving(remedy, evidence)
            row = TrialRow(remedy.name, remedy.says, remedy.patch, predicted=predicted, predicted_by=finding)
            self.rows.append(row)
        return remedies

    def _try_all(self, remedies: Sequence[Remedy]) -> Iterator[str]:
        is_cut = False
        for index, remedy in enumerate(remedies):
            if is_cut := self._is_over(1):
                break
            yield from self._try(remedy.name, (remedy,))
            if index % BETWEEN == BETWEEN - 1 and not self._is_over(1):
                yield from self._try(BASELINE, ())
        for _ in range(self.request.repeat):
            repeated = [*self._list_winners(remedies), *self._list_undecided(remedies)]
            self._planned += 2 * len(repeated)
            for remedy in repeated:
                if self._is_over(2):
                    is_cut = True
                    break
                yield from self._try(remedy.name, (remedy,))
                yield from self._try(BASELINE, ())
        best = combine(self._list_winners(remedies))
        if len(best) > 1 and self._is_over(1):
            is_cut = True
        elif len(best) > 1:
            self._planned += 1
            parts = tuple(remedy.name for remedy in best)
            says, patch = " + ".join(parts), "\n".join(remedy.patch for remedy in best)
            self.rows.append(TrialRow(TOGETHER, says, patch, parts=parts))
            yield from self._try(TOGETHER, best)
        yield from self._try(BASELINE, ())
        self.is_complete = not is_cut

    def _is_over(self, more: int) -> bool:
        """Whether the limits leave no time, or not so many runs besides the last one of the baseline."""
        request = self.request
        return self._done + more + 1 > request.max_runs or time.monotonic() - self._started > request.max_seconds

    def _list_winners(self, remedies: Sequence[Remedy]) -> list[Remedy]:
        """List the remedies that won and left the losses what they were, the best first."""
        return [remedy for saving, remedy in self._rank(remedies) if saving.is_won]

    def _list_undecided(self, remedies: Sequence[Remedy]) -> list[Remedy]:
        """List those that seem to save most, where more runs could show it."""
        undecided = [remedy for saving, remedy in self._rank(remedies) if saving.share >= NOTABLE and not saving.is_won]
        return undecided[:MAX_UNDECIDED]

    def _rank(self, remedies: Sequence[Remedy]) -> list[tuple[Saving, Remedy]]:
        """Rank the measured remedies that left the losses what they were, those that saved most first."""
        rows = [(self._find(remedy.name), remedy) for remedy in remedies]
        kept = [(row.saving, remedy) for row, remedy in rows if row.saving is not None and row.loss != "different"]
        return sorted(kept, key=lambda pair: -pair[0].share)

    # --- one process ---------------------------------------------------------------------------------------------

    def _try(self, name: str, remedies: Sequence[Remedy]) -> Iterator[str]:
        before = self._find(name)
        self._replace(replace(before, state="running"))
        self._begin("the program as it is" if name == BASELINE else name)
        try:
            yield self.progress.line
            report = self._measure(remedies)
        except BaseException:
            self._replace(before)
            raise
        self._end()
        blocks = report.get("block_seconds", [])
        unused = [each.name for each in remedies if each.name in report.get("unused", ())]
        if unused and len(unused) == len(remedies):
            report = {"outcome": "unused", "error": "nothing in the program uses it"}
        if report["outcome"] in ("measured", "ended") and len(blocks) >= 2:
            self._times.setdefault(name, []).append(blocks)
            self._losses.setdefault(name, []).append(report["losses"])
            self.device, self.torch = report["device"], report["torch"]
            if name == BASELINE:
                self._gc_share = report["gc_seconds"] / (sum(blocks) * report["block_steps"])
            self.places = self.places.add(report["script"], report["places"], report["calls"])
            times = [time for run in self._times[name] for time in run]
            measured = replace(before, state="measured", step=sorted(times)[len(times) // 2], why="")
            self._replace(replace(measured, memory=report["peak_memory_bytes"] or None))
            self._estimate()
        elif before.state == "measured":
            self._replace(before)  # it was measured before; a later run that fails takes nothing away
        else:
            state = "unused" if report["outcome"] == "unused" else "failed"
            self._replace(replace(before, state=state, why=report["error"] or "no step ended"))
        yield self.progress.line

    def _estimate(self) -> None:
        """Estimate all savings again: each run of the baseline is for all of them."""
        baseline = self._times[BASELINE]
        for row in self.rows:
            if row.name != BASELINE and row.name in self._times:
                others = [runs for name, runs in self._times.items() if name not in (BASELINE, row.name)]
                saving = estimate_saving(baseline, self._times[row.name], others)
                is_exact = not any(BY_NAME[name].changes_numbers for name in row.parts or (row.name,))
                loss = compare_losses(self._losses[BASELINE], self._losses[row.name][0], is_exact)
                self._replace(replace(row, saving=saving, loss=loss))

    def _measure(self, remedies: Sequence[Remedy]) -> dict[str, Any]:
        """Run the program once. Returns its report; "error" says why there is none."""
        report = os.path.join(self._folder, "report.json")
        with contextlib.suppress(OSError):
            os.remove(report)
        command = split_command(self.request.command, self.request.python)
        program, request = list(command.program), self.request
        is_workload = program[0] in WORKLOADS and not os.path.exists(os.path.join(request.cwd, program[0]))
        if is_workload and "--active" not in program:  # else it ends after a few steps
            program += ["--active", str(request.warmup + request.steps)]
        spec = self._write_spec(remedies, report, program)
        argv = [*command.launcher, str(HARNESS), "--trial", spec]
        error, refused = self._run(argv, _set_environment(remedies), report)
        try:
            known: dict[str, Any] = json.loads(Path(report).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            known = {"outcome": "failed", "error": error or "the program ended without a step", "losses": []}
        self._has_gpu = known.get("has_gpu", self._has_gpu)
        if refused:  # also where the program went on without it
            return {"outcome": "unsafe", "error": f"it would {refused}", "losses": []}
        return known

    def _write_spec(self, remedies: Sequence[Remedy], report: str, program: Sequence[str]) -> str:
        """Write what a process does. Returns the path."""
        request, spec = self.request, os.path.join(self._folder, "spec.json")
        content = {
            "command": list(program),
            "module": split_command(request.command, request.python).is_module,
            "step": request.step,
            "remedies": [remedy.name for remedy in remedies],
            "warmup": request.warmup,
            "steps": request.steps,
            "seconds": request.limit,
            "seed": request.seed,
            "allow_writes": request.allow_writes,
            "report": report,
            "journal": os.path.join(self._folder, "journal.jsonl"),
        }
        Path(spec).write_text(json.dumps(content), encoding="utf-8")
        return spec

    def _run(self, argv: Sequence[str], environment: dict[str, str], report: str = "") -> tuple[str, str]:
        """Run a process, and remove the files that it creates. Returns why it failed, and what was refused."""
        journal = os.path.join(self._folder, "journal.jsonl")
        try:
            error = self._process.run(argv, environment, self.request.limit * 2 + 60, report, self.request.cwd or None)
        finally:
            created, refused = read_journal(journal)
            remove_created(created)
            with contextlib.suppress(OSError):
                os.remove(journal)
        return error, refused

    def _record(self, name: str, remedies: Sequence[Remedy]) -> str:
        """Record a short trace of the program with remedies. Returns its path. Raises TraceError, TrialsStopped."""
        request, runs = self.request, os.path.join(self._folder, f"trace-{name}")
        options = ["-o", runs, "--no-table", "--yes", "--no-preflight"]
        options += ["--step", request.step] if request.step != "auto" else []
        command = split_command(request.command, request.python)
        words = list(command.program)
        if command.is_launched:  # the recorder starts it as torchrun does
            launched = command.launcher.index("torch.distributed.run")
            module = ["--module"] if command.is_module else []
            words = ["-m", "torch.distributed.run", *command.launcher[launched + 1 :], *module, *words]
            interpreter = command.launcher[: launched - 1]
        else:
            interpreter = command.launcher
            words = ["-m", *words] if command.is_module else words
        spec = self._write_spec(remedies, "", command.program)
        environment = {**_set_environment(remedies), SPEC_VARIABLE: spec}
        error, refused = self._run([*interpreter, str(HARNESS), *options, *words], environment)
        found = sorted(Path(runs).glob("**/*.pt.trace.json*"))
        if not found:
            reason = f"it would {refused}" if refused else error or "the program recorded no step"
            raise TraceError(f"no trace was recorded: {reason}")
        suffix = found[0].name.partition(".pt.trace.json")[2]
        self._recordings[name] = path = os.path.join(self._folder, f"{name}.pt.trace.json{suffix}")
        os.rename(found[0], path)
        return path

    def _check(self, trace: str) -> Evidence:
        """Check the recording of the program as it is, and keep it where the user asked for it."""
        if self.request.keep is not None:
            os.makedirs(self.request.keep, exist_ok=True)
            self.trace = shutil.copy(trace, self.request.keep)
        check = check_range(load_trace(trace, cache=False), None, None)
        fired = {each.id: each.won_share for each in check.patterns if each.state == "fired"}
        if self._gc_share >= NOTABLE:  # measured without the profiler, by callbacks of the collector
            fired["gc-pause"] = self._gc_share
        places: dict[str, tuple[tuple[str, int], ...]] = {}
        for each in check.patterns:
            name, _, number = (each.line or "").rpartition(":")
            path = os.path.abspath(os.path.join(self.request.cwd, name))
            if each.id in fired and number.isdecimal() and os.path.isfile(path):
                places[each.id] = ((path, int(number)),)
        return Evidence(fired, self._has_gpu, check.verdict.first, places)

    # --- rows ----------------------------------------------------------------------------------------------------

    def _find(self, name: str) -> TrialRow:
        return next(row for row in self.rows if row.name == name)

    def _replace(self, row: TrialRow) -> None:
        self.rows = [row if each.name == row.name else each for each in self.rows]


def _set_environment(remedies: Sequence[Remedy]) -> dict[str, str]:
    """Return the environment of a process with the variables of remedies."""
    environment = {**os.environ}
    for remedy in remedies:
        for variable, value in remedy.environment.items():
            before = environment.get(variable) if variable == "PYTORCH_CUDA_ALLOC_CONF" else None
            environment[variable] = f"{before},{value}" if before else value
    return environment


SUFFIXES = (".json", ".json.gz", ".pt.trace", ".pftrace")  # ends of the names of traces; no program has such a name


def is_recorded_run(words: tuple[str, ...]) -> bool:
    """Tell whether a command line names a trace where it would name a program."""
    return len(words) == 1 and words[0].endswith(SUFFIXES) and os.path.isfile(words[0])


def read_recorded_run(trace: str) -> TrialRequest:
    """Read what was run for a trace, with the interpreter, the folder and the step of that run.

    Only a run that this user has started with this program is repeated: the file beside a trace may have come with it.
    Raises TraceError.
    """
    stored = read_request(trace)
    if stored is None:
        raise TraceError("it is unknown how this trace was recorded; name the program: torchprof-tui try -- python …")
    command = shlex.join(stored.request.command)
    if not stored.is_own:
        raise TraceError(f"this run was not made by you; if you trust it: torchprof-tui try -- {command}")
    words = list(stored.request.options)
    if "--nproc" in words:
        ranks = words[words.index("--nproc") + 1]
        raise TraceError(f"run --nproc is not repeated; try -- torchrun --nproc-per-node {ranks} FILE.py")
    step = words[words.index("--step") + 1] if "--step" in words else "auto"
    if step in ("none", "optimizer"):
        step = "auto"
    return TrialRequest(tuple(stored.request.command), stored.request.python, step=step, cwd=stored.cwd)
