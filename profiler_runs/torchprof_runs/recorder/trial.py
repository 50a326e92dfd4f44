"""Run a program once with remedies and measure its steps without the profiler: ``harness.py --trial SPEC.json``.

The spec names the command, the remedies, the steps and the file of the report; the report has the times of blocks of
steps, the losses, the peak memory, and how it ended. `prepare_recording` does the same to a process that is recorded.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import math
import os
import random
import resource
import sys
import tempfile
import threading
import time
from typing import Any

import torch

from . import rank_environment, target_program, trial_remedies
from .options import Options, UsageError
from .step_detection import FunctionStepCounter, OptimizerStepCounter
from .write_guard import UnsafeWriteError, WriteGuard

BLOCKS = 6
"""Blocks of measured steps: the GPU is waited for at the end of each only, so that steps overlap as they do alone."""

MAX_LOSSES = 1000
POLL_SECONDS = 0.02


class TrialFinishedError(BaseException):
    """All steps are measured. No `Exception`: the program must not catch it."""


class FirstStep:
    """Apply remedies to the program's outermost modules when its first step has ended, and wait for a turn then.

    `seconds`: how long for, at most; infinite in all ranks but the first, whose turn is theirs.
    """

    def __init__(self, seconds: float) -> None:
        self.count = 0
        self.seconds = seconds
        self._turn = Turn() if seconds < math.inf else None
        self.modules: list[Any] = []
        self.calls: list[tuple[str, int] | None] = []  # the lines that call them
        self.after_first: list[Any] = []

    def note_step(self) -> None:
        """Note the end of a step."""
        self.count += 1
        if self.count == 1:
            _restore_calls()
            for apply in self.after_first:
                apply(self.modules)
            if self._turn is not None:
                self._turn.take(self.seconds)


class StepTimer(FirstStep):
    """Time steps in blocks after the warm-up, and end the program after the last one."""

    def __init__(self, warmup: int, steps: int, seconds: float) -> None:
        super().__init__(seconds)
        self.block_seconds: list[float] = []
        self.block_steps = max(1, steps // BLOCKS)
        self.peak_memory = 0
        self.gc_seconds = 0.0
        self._collection_began = 0.0
        self._warmup, self._blocks = max(warmup, 1), min(BLOCKS, steps)
        self._began = self._block_began = 0.0

    def note_step(self) -> None:
        """Note the end of a step. Raises TrialFinishedError after the last one."""
        super().note_step()
        if self.count == self._warmup:
            _wait_for_gpu()
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
            gc.callbacks.append(self._note_collection)
            self._began = self._block_began = time.perf_counter()
        elif self.count > self._warmup and (self.count - self._warmup) % self.block_steps == 0:
            _wait_for_gpu()
            now = time.perf_counter()
            self.block_seconds.append((now - self._block_began) / self.block_steps)
            self._block_began = now
            if len(self.block_seconds) >= self._blocks or now - self._began > self.seconds:
                self.peak_memory = _read_peak_memory()
                gc.callbacks.remove(self._note_collection)
                raise TrialFinishedError

    def _note_collection(self, phase: str, _: Any) -> None:
        now = time.perf_counter()
        if phase == "start":
            self._collection_began = now
        else:
            self.gc_seconds += now - self._collection_began


class Turn:
    """Let the trials of a user on one host measure one after the other: side by side they would measure each other.

    It is taken after the first step, since imports and compilation are not measured, and ends with the process. Create
    it before files are watched, since it opens one.
    """

    def __init__(self) -> None:
        self._file: int | None = None
        path = os.path.join(tempfile.gettempdir(), f"torchprof-try-{os.getuid()}.lock")
        with contextlib.suppress(OSError):  # no lock in a folder that cannot be written
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def take(self, seconds: float) -> bool:
        """Wait until no other trial has the turn, at most for `seconds`. Returns whether this one has it."""
        deadline = time.monotonic() + seconds
        while self._file is not None and time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            time.sleep(POLL_SECONDS)
        return False


def _wait_for_gpu() -> None:
    if torch.cuda.is_initialized():
        torch._C._cuda_synchronize()


def _read_peak_memory() -> int:
    """Read the peak of the allocator since the warm-up, or of the process where there is no GPU: bytes."""
    if torch.cuda.is_initialized():
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# --- modules and losses -----------------------------------------------------------------------------------------

_call = torch.nn.Module.__call__
_depth = threading.local()


def _collect_modules(timer: FirstStep) -> None:
    """Collect the modules that the program calls itself, until the first step ends."""

    def collecting_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        depth = getattr(_depth, "value", 0)
        if depth == 0 and not any(each is self for each in timer.modules) and any(True for _ in self.parameters()):
            timer.modules.append(self)
            timer.calls.append(trial_remedies.find_own_line())
        _depth.value = depth + 1
        try:
            return _call(self, *args, **kwargs)
        finally:
            _depth.value = depth

    torch.nn.Module.__call__ = collecting_call


def _restore_calls() -> None:
    torch.nn.Module.__call__ = _call


def _record_losses(losses: list[Any]) -> None:
    """Record what `.backward()` is called on, if it is one number; it stays on its device until the end."""
    backward = torch.Tensor.backward

    def recording_backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.numel() == 1 and len(losses) < MAX_LOSSES:
            losses.append(self.detach().clone())
        return backward(self, *args, **kwargs)

    torch.Tensor.backward = recording_backward


def _seed(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    with contextlib.suppress(ImportError):
        importlib.import_module("numpy.random").seed(seed % 2**32)


# --- one run ----------------------------------------------------------------------------------------------------


def main(argv: list[str]) -> int:
    """Run the trial of a spec. Returns the exit status, 0 where all steps were measured."""
    with open(argv[0], encoding="utf-8") as file:
        spec = json.load(file)
    report: dict[str, Any] = {"outcome": "", "error": "", "losses": [], "torch": torch.__version__}
    rank = rank_environment.identify_rank(os.environ)
    # Only one rank looks at the clock: all must end after the same step.
    timer = StepTimer(spec["warmup"], spec["steps"], spec["seconds"] if rank is None or not rank.rank else math.inf)
    losses: list[Any] = []
    status = 0
    try:
        _prepare(spec, timer)
        _record_losses(losses)
        _run_program(spec, timer)
        report["outcome"] = "ended"
        report["error"] = f"the program ended after {timer.count} steps"
    except TrialFinishedError:
        report["outcome"] = "measured"
    except UnsafeWriteError as error:
        report |= {"outcome": "unsafe", "error": f"it would {error}"}
    except UsageError as error:
        report |= {"outcome": "usage", "error": str(error)}
        status = 2
    except SystemExit as error:
        ended = error.code in (None, 0)
        report |= {"outcome": "ended" if ended else "failed", "error": f"exit status {error.code or 0}"}
        report["error"] += f" after {timer.count} steps"
        status = 0 if ended else 1
    except Exception as error:
        report |= {"outcome": "failed", "error": _describe(error)}
        status = 1
    report["losses"] = [float(each) for each in losses] if report["outcome"] == "measured" else []
    report |= {
        "block_seconds": timer.block_seconds,
        "block_steps": timer.block_steps,
        "gc_seconds": timer.gc_seconds,
        "steps": timer.count,
        "modules": [type(each).__name__ for each in timer.modules],
        "peak_memory_bytes": timer.peak_memory,
        "unused": sorted(set(spec["remedies"]) & trial_remedies.COUNTED - set(trial_remedies.places)),
        "places": trial_remedies.places,
        "calls": [each for each in timer.calls if each is not None],
        "script": _find_script(),
        "has_gpu": torch.cuda.is_initialized(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_initialized() else "CPU",
    }
    _write(spec["report"], report)
    # The program's own threads, loaders and exit handlers may wait for ever: it was ended in the middle of a step.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _describe(error: BaseException) -> str:
    line = " ".join(str(error).split())[:300]
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return "out of memory on the GPU"
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def prepare_recording(path: str) -> None:
    """Apply the remedies of a spec to a process that is recorded, and watch what its program writes."""
    with open(path, encoding="utf-8") as file:
        spec = json.load(file)
    rank = rank_environment.identify_rank(os.environ)
    first = FirstStep(spec["seconds"] if rank is None or not rank.rank else math.inf)
    _prepare(spec, first)
    _count_steps(first)


def _find_script() -> str:
    path = os.path.abspath(getattr(sys.modules["__main__"], "__file__", "") or "")
    return path if trial_remedies.is_own_file(path) else ""


def _prepare(spec: dict[str, Any], timer: FirstStep) -> None:
    for name in reversed(spec["remedies"]):  # what is patched first sees what the later ones changed
        if name in trial_remedies.AT_START:
            trial_remedies.AT_START[name]()
        if name in trial_remedies.AFTER_FIRST_STEP:
            timer.after_first.append(trial_remedies.AFTER_FIRST_STEP[name])
        elif name not in trial_remedies.AT_START and name not in trial_remedies.BY_ENVIRONMENT:
            raise UsageError(f"no remedy {name!r}")
    _collect_modules(timer)
    _seed(spec["seed"])
    if not spec["allow_writes"]:
        WriteGuard(spec["journal"], os.path.dirname(spec["journal"])).install(torch)


def _run_program(spec: dict[str, Any], timer: StepTimer) -> None:
    options = Options(command=tuple(spec["command"]), module=spec["module"], step=spec["step"])
    function = spec["step"] if ":" in spec["step"] else None
    if function is None and target_program.is_workload(options):
        function = target_program.WORKLOAD_STEP
    if function is None:
        _count_steps(timer)
        program = target_program.find_program(options, None, None)
    else:
        counter = FunctionStepCounter(function, timer.note_step, lambda _: None)
        counter.install()
        module, _, name = function.partition(":")
        is_main = module == "__main__"
        program = target_program.find_program(options, name if is_main else None, counter.decorate if is_main else None)
    program.run()


def _count_steps(timer: FirstStep) -> None:
    """Count the steps of the optimizer; of a program that creates none, the calls of its first outermost module."""
    has_optimizer = False

    def note_creation() -> None:
        nonlocal has_optimizer
        has_optimizer = True

    OptimizerStepCounter(timer.note_step, note_creation).install()
    collecting = torch.nn.Module.__call__

    def counting_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = (collecting if timer.count == 0 else _call)(self, *args, **kwargs)
        if not has_optimizer and timer.modules and self is timer.modules[0] and not getattr(_depth, "value", 0):
            timer.note_step()
            torch.nn.Module.__call__ = counting_call
        return result

    torch.nn.Module.__call__ = counting_call


def _write(path: str, report: dict[str, Any]) -> None:
    rank = rank_environment.identify_rank(os.environ)
    target = path if rank is None or not rank.rank else f"{path}.rank{rank.rank}"
    with open(f"{target}.part", "w", encoding="utf-8") as file:
        json.dump(report, file)
    os.replace(f"{target}.part", target)
