"""Run a program again and again, as it is and with remedies, and yield the table as it fills.

One process at a time: what ran beside it would be measured, too. The second records a trace, the others run without the
profiler: baseline, two remedies, baseline, and so on, then the winners again, the best together, and the baseline once
more.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torchprof_try.estimates import Saving, compare_losses, estimate_saving
from torchprof_try.remedies import BY_NAME, TOGETHER, Evidence, Remedy, choose_remedies, combine, predict_saving
from torchprof_tui.api.checks import check_range
from torchprof_tui.runs.recording_request import HARNESS, WORKLOADS
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.load_in_process import load_trace

BASELINE = "baseline"
BETWEEN = 2
"""Remedies from one run of the baseline to the next."""

LAUNCHERS = ("torchrun",)


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """What is tried. `command`: the program with its arguments, after the interpreter. Times in seconds.

    `step`: what ends a step, as `run --step` takes it. `limit`: of each process.
    """

    command: tuple[str, ...]
    python: str = sys.executable
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


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One line of the table. `state`: waiting, running, measured, failed, or unused; `why`: of the last two.

    `step`: seconds, the median over blocks of steps; `memory`: peak in bytes. `predicted`: a share of the step.
    """

    name: str
    says: str = ""
    patch: str = ""
    state: str = "waiting"
    why: str = ""
    predicted: float | None = None
    saving: Saving | None = None
    step: float | None = None
    memory: int | None = None
    loss: str = ""
    parts: tuple[str, ...] = ()


@dataclass(slots=True)
class Trials:
    """The table of a program: `rows` change while `run` goes on."""

    request: TrialRequest
    rows: list[TrialRow] = field(default_factory=list)
    evidence: Evidence | None = None
    note: str = ""
    device: str = ""
    torch: str = ""
    trace: str | None = None
    is_complete: bool = False
    _times: dict[str, list[list[float]]] = field(default_factory=dict)
    _losses: dict[str, list[list[float]]] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None
    _created: list[str] = field(default_factory=list)
    _has_gpu: bool = False

    def run(self) -> Generator[str, None, None]:
        """Run everything and yield one line of progress after each change of the rows. Raises TraceError.

        Close the iterator to end early: the process group is ended, and the rows stay as they are.
        """
        folder = tempfile.mkdtemp(prefix="torchprof-try-")
        try:
            self.rows = [TrialRow(BASELINE, "the program as it is")]
            yield from self._try(folder, BASELINE, ())  # first: it finds out whether the program can be repeated
            if self._find(BASELINE).state != "measured":
                raise TraceError(f"the program cannot be tried: {self._find(BASELINE).why}")
            yield "recording a trace"
            self.evidence = self._record(folder)
            yield from self._try(folder, BASELINE, ())
            remedies = self._choose()
            yield f"{len(remedies)} remedies to try"
            yield from self._try_all(folder, remedies)
            self.is_complete = True
        finally:
            self._end_process()
            shutil.rmtree(folder, ignore_errors=True)

    def _choose(self) -> list[Remedy]:
        request, evidence = self.request, self.evidence
        assert evidence is not None
        remedies = choose_remedies(evidence, request.only, request.without, request.everything)
        for remedy in remedies:
            row = TrialRow(remedy.name, remedy.says, remedy.patch, predicted=predict_saving(remedy, evidence))
            self.rows.append(row)
        return remedies

    def _try_all(self, folder: str, remedies: Sequence[Remedy]) -> Iterator[str]:
        for index, remedy in enumerate(remedies):
            yield from self._try(folder, remedy.name, (remedy,))
            if index % BETWEEN == BETWEEN - 1:
                yield from self._try(folder, BASELINE, ())
        for _ in range(self.request.repeat):
            for remedy in self._list_winners(remedies):
                yield from self._try(folder, remedy.name, (remedy,))
                yield from self._try(folder, BASELINE, ())
        best = combine(self._list_winners(remedies))
        if len(best) > 1:
            parts = tuple(remedy.name for remedy in best)
            says, patch = " + ".join(parts), "\n".join(remedy.patch for remedy in best)
            self.rows.append(TrialRow(TOGETHER, says, patch, parts=parts))
            yield from self._try(folder, TOGETHER, best)
        yield from self._try(folder, BASELINE, ())

    def _list_winners(self, remedies: Sequence[Remedy]) -> list[Remedy]:
        """List the remedies that won and left the losses what they were, the best first."""
        won = []
        for remedy in remedies:
            row = self._find(remedy.name)
            if row.saving is not None and row.saving.is_won and row.loss != "different":
                won.append((row.saving.share, remedy))
        return [remedy for _, remedy in sorted(won, key=lambda pair: -pair[0])]

    # --- one process ---------------------------------------------------------------------------------------------

    def _try(self, folder: str, name: str, remedies: Sequence[Remedy]) -> Iterator[str]:
        before = self._find(name)
        self._replace(replace(before, state="running"))
        yield name
        report = self._measure(folder, remedies)
        blocks = report.get("block_seconds", [])
        unused = [each.name for each in remedies if each.name in report.get("unused", ())]
        if unused and len(unused) == len(remedies):
            report = {"outcome": "unused", "error": "nothing in the program uses it"}
        if report["outcome"] in ("measured", "ended") and len(blocks) >= 2:
            self._times.setdefault(name, []).append(blocks)
            self._losses.setdefault(name, []).append(report["losses"])
            self.device, self.torch = report["device"], report["torch"]
            times = [time for run in self._times[name] for time in run]
            measured = replace(before, state="measured", step=sorted(times)[len(times) // 2], why="")
            self._replace(replace(measured, memory=report["peak_memory_bytes"] or None))
            self._estimate()
        elif before.state == "measured":
            self._replace(before)  # it was measured before; a later run that fails takes nothing away
        else:
            state = "unused" if report["outcome"] == "unused" else "failed"
            self._replace(replace(before, state=state, why=report["error"] or "no step ended"))
        yield name

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

    def _measure(self, folder: str, remedies: Sequence[Remedy]) -> dict[str, Any]:
        """Run the program once. Returns its report; "error" says why there is none."""
        spec, report = os.path.join(folder, "spec.json"), os.path.join(folder, "report.json")
        with contextlib.suppress(OSError):
            os.remove(report)
        request = self.request
        launcher, command, is_module = split_command(request.command)
        content = {
            "command": [*command, *self._ask_for_steps(command)],
            "module": is_module,
            "step": request.step,
            "remedies": [remedy.name for remedy in remedies],
            "warmup": request.warmup,
            "steps": request.steps,
            "seconds": request.limit,
            "seed": request.seed,
            "allow_writes": request.allow_writes,
            "report": report,
        }
        Path(spec).write_text(json.dumps(content), encoding="utf-8")
        environment = {**os.environ}
        for remedy in remedies:
            for variable, value in remedy.environment.items():
                before = environment.get(variable) if variable == "PYTORCH_CUDA_ALLOC_CONF" else None
                environment[variable] = f"{before},{value}" if before else value
        prefix = launcher or [request.python]
        error = self._run([*prefix, str(HARNESS), "--trial", spec], environment, request.limit * 2 + 60)
        try:
            known: dict[str, Any] = json.loads(Path(report).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {"outcome": "failed", "error": error or "the program ended without a step", "losses": []}
        self._created, self._has_gpu = known["created"], known["has_gpu"]
        for path in reversed(self._created):
            _remove_created(path)
        return known

    def _ask_for_steps(self, command: Sequence[str]) -> list[str]:
        """Ask a built-in workload for enough steps."""
        if command[0] in WORKLOADS and not os.path.exists(command[0]) and "--active" not in command:
            return ["--active", str(self.request.warmup + self.request.steps)]
        return []

    def _record(self, folder: str) -> Evidence:
        """Record a trace of the program as it is, and check it."""
        request, runs = self.request, os.path.join(folder, "runs")
        options = ["-o", runs, "--no-table", "--yes", "--no-preflight"]
        options += ["--step", request.step] if request.step != "auto" else []
        argv = [request.python, str(HARNESS), *options, *request.command]
        error = self._run(argv, dict(os.environ), request.limit * 2 + 60)
        for path in reversed(self._created):  # the recorder does not watch what the program writes
            _remove_created(path)
        found = sorted(Path(runs).glob("**/*.pt.trace.json*"))
        if not found:
            raise TraceError(f"no trace was recorded: {error or 'the program recorded no step'}")
        if request.keep is not None:
            os.makedirs(request.keep, exist_ok=True)
            self.trace = shutil.copy(found[0], request.keep)
        check = check_range(load_trace(str(found[0]), cache=False), None, None)
        fired = {each.id: each.won_share for each in check.patterns if each.state == "fired"}
        return Evidence(fired, self._has_gpu, check.verdict.first)

    def _run(self, argv: Sequence[str], environment: dict[str, str], seconds: float) -> str:
        """Run a process in a group of its own until it ends. Returns why it failed, from its last line; "" if not."""
        with tempfile.TemporaryFile() as output:
            try:
                self._process = subprocess.Popen(
                    argv,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            except OSError as error:
                raise TraceError(f"{argv[0]}: {error.strerror or error}") from error
            try:
                status = self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                return f"no end within {seconds:.0f} s"
            finally:
                self._end_process()
            output.seek(max(0, output.seek(0, os.SEEK_END) - 4000))
            lines = output.read().decode("utf-8", "replace").strip().splitlines()
        return "" if status == 0 else (lines[-1].strip()[:200] if lines else f"exit status {status}")

    def _end_process(self) -> None:
        """End the process and all that it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        for number, seconds in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            if not _has_group(process.pid):
                return

    # --- rows ----------------------------------------------------------------------------------------------------

    def _find(self, name: str) -> TrialRow:
        return next(row for row in self.rows if row.name == name)

    def _replace(self, row: TrialRow) -> None:
        self.rows = [row if each.name == row.name else each for each in self.rows]


def split_command(command: Sequence[str]) -> tuple[list[str], list[str], bool]:
    """Split a command into the launcher's part ([] for none), the program's, and whether it is a module (`-m`)."""
    words = list(command)
    if words and os.path.basename(words[0]) in LAUNCHERS:
        place = next((index for index, word in enumerate(words) if index and word.endswith(".py")), None)
        if place is None:
            raise TraceError("torchrun: name the script, FILE.py")
        return words[:place], words[place:], False
    if words[:1] == ["-m"]:
        return [], words[1:], True
    return [], words, False


def _has_group(group: int) -> bool:
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            return False
        time.sleep(0.02)
    return True


def _remove_created(path: str) -> None:
    """Remove a file or an empty folder that a run created."""
    with contextlib.suppress(OSError):
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        else:
            os.remove(path)
