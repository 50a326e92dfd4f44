"""Open a trace from Python: its events, and the questions that the commands answer, as methods."""

from __future__ import annotations

import contextlib
import importlib
import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from torchprof_tui.answers import html
from torchprof_tui.answers.arguments import (
    check_flag,
    check_number,
    check_optional,
    check_pair,
    check_text,
    check_time,
    reject,
)
from torchprof_tui.answers.steps import Step, list_steps
from torchprof_tui.api.events import Event, Events
from torchprof_tui.trace.core.atomic_file import OutputError
from torchprof_tui.trace.core.errors import ConnectionLostError, TraceError, UnreadableFileError, format_error
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.loading.load_in_process import load_resolved
from torchprof_tui.trace.loading.progress import LoadError, ignore_progress
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.trace.model.trace import Trace as TraceModel
from torchprof_tui.trace.sources.ssh_connections import SshConnections
from torchprof_tui.trace.storage.disk_cache import CacheEntry, prune_cache

if TYPE_CHECKING:
    from torchprof_tui.analysis.critical_path.critical_path import CriticalPath
    from torchprof_tui.analysis.dispatch.source_line import SourceLineFinder
    from torchprof_tui.analysis.doctor.read_problems import Remark
    from torchprof_tui.analysis.serving.serving_steps import ServingReport
    from torchprof_tui.analysis.table.groups import Profile
    from torchprof_tui.answers.chain import Chain
    from torchprof_tui.answers.check import Check
    from torchprof_tui.answers.diff import Diff
    from torchprof_tui.answers.memory import AliveMemory
    from torchprof_tui.answers.table import MemoryTable, Table
    from torchprof_tui.answers.what_if import WhatIf
    from torchprof_tui.api import checks, gpu_work, tables
    from torchprof_tui.api.checks import DiffBy
    from torchprof_tui.api.tables import Repetition


class _LaterModule:
    """A module of the API, imported when it is asked: to open a trace and read its columns needs none of them."""

    def __init__(self, name: str) -> None:
        self._name = f"torchprof_tui.api.{name}"

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


if not TYPE_CHECKING:
    checks, gpu_work, tables = map(_LaterModule, ("checks", "gpu_work", "tables"))


class Trace:
    """An opened trace, of one process or of several ranks on one clock; made by `open`.

    Questions about one process (`table`, `memory`, `memory_at`) are answered for the first of several ranks, as by the
    commands; `select_rank` chooses another one. All methods raise TraceError where the trace cannot answer.
    """

    def __init__(self, model: TraceModel, cache_entry: CacheEntry | None = None) -> None:
        self._model = model
        self._cache_entry = cache_entry
        if cache_entry is not None:
            weakref.finalize(self, cache_entry.close)

    def __repr__(self) -> str:
        ranks = f", {len(self.ranks)} ranks" if len(self.ranks) > 1 else ""
        return f"<trace {os.path.basename(self.label.rstrip('/'))!r}: {len(self._model):,} events{ranks}>"

    def _repr_html_(self) -> str:
        ranks = f"ranks {', '.join(map(str, self.ranks))}" if len(self.ranks) > 1 else ""
        rows = ((step.name, step.start_ns / 1000, step.duration_ns / 1000) for step in self.steps)
        lines = (
            f"{len(self._model):,} events, {html.format_number(self.duration_ns / 1e6)} ms",
            ", ".join(dict.fromkeys(self.devices)),
            ranks,
            *self.lost_ranks,
        )
        steps = html.build_table(("step", "start µs", "duration µs"), rows) if self.steps else ""
        return html.build_block(self.label, lines, steps)

    def __enter__(self) -> Trace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the trace's entry in the cache, which the end of the object does as well. May be called again."""
        if self._cache_entry is not None:
            self._cache_entry.close()

    @property
    def label(self) -> str:
        """What it was opened as."""
        return self._model.label

    @property
    def rank(self) -> int | None:
        """The rank that the file says it is of; None where it says none, and for several ranks."""
        return self._model.rank

    @property
    def ranks(self) -> tuple[int, ...]:
        """The numbers of the ranks, ascending; () for a trace without a rank."""
        if self._model.merged_ranks is None:
            return () if self.rank is None else (self.rank,)
        return tuple(rank.number for rank in self._model.merged_ranks.all)

    @property
    def lost_ranks(self) -> tuple[str, ...]:
        """Why ranks are missing, one line each."""
        return () if self._model.merged_ranks is None else tuple(map(str, self._model.merged_ranks.lost))

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices that the file describes."""
        return tuple(device.name for device in self._model.devices)

    @property
    def duration_ns(self) -> int:
        """From the start of the first event to the end of the last, without the profiler's own."""
        first, last = self._model.span
        return last - first

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps by time, of several ranks one rank after the other."""
        steps = list_steps(self._model)
        if self._model.merged_ranks is None and self.rank is not None:
            steps = [replace(step, rank=self.rank) for step in steps]
        return tuple(steps)

    @cached_property
    def events(self) -> Events:
        """All events: columns, records, Arrow, pandas, polars."""
        return Events(self._model)

    def select_rank(self, number: int) -> Trace:
        """Return one rank of a run, on the clock of the run, with its own rows. Raises TraceError."""
        with translate_errors():
            number = check_number("number", number)
            merged = self._model.merged_ranks
            rank = None if merged is None else merged.find_rank(number)
            if rank is not None:
                return Trace(rank.numbered_trace)
            if merged is None and number == self.rank:
                return self
            known = f"ranks {', '.join(map(str, self.ranks))}" if self.ranks else "one trace without a rank number"
            raise TraceError(f"no rank {number}: {self.label} holds {known}")

    def table(self, by: tables.By = "name", *, step: int | None = None, flops: bool = False) -> Table:
        """Return the profiler's table, as `key_averages()`: the rows of `torchprof-tui table --by …`.

        `by`: name, shape, stack, module, class, step or step-kind. `step`: only what step N did and launched. `flops`:
        with FLOPs and rates, which reads the args of all ops.
        """
        with translate_errors():
            step, flops = check_optional(check_number, "step", step), check_flag("flops", flops)
            return tables.build_table(self._profile, by, step, flops)

    @cached_property
    def repetitions(self) -> tuple[Repetition, ...]:
        """What repeats in the order of the kernels, outermost first: `torchprof-tui table --of repetitions`.

        Tokens or iterations, and the layers in each, without steps or annotations; () if nothing repeats.
        """
        with translate_errors():
            return tables.list_repetitions(self._model.all_ranks[0].trace)

    def memory(self, *, step: int | None = None) -> MemoryTable:
        """Return allocations by operator and the peak of each device: `torchprof-tui table --of memory`.

        Raises TraceError where memory was not recorded (profile_memory=True).
        """
        with translate_errors():
            step = check_optional(check_number, "step", step)
            return tables.build_memory(self._profile, step)

    def serving(self) -> ServingReport:
        """Return the steps of a serving engine: arrays over the steps, sums by kind, times of the layers.

        vLLM, SGLang, ATOM and TensorRT-LLM. Raises TraceError, with how to record them, where there are none.
        """
        with translate_errors():
            return tables.read_serving(self._model.all_ranks[0].numbered_trace)

    def memory_at(
        self, at: int | str = "peak", *, by: tables.MemoryBy = "category", device: str | None = None
    ) -> AliveMemory:
        """Return what is alive in memory at a time in ns, at the "peak" or at the "end": `torchprof-tui memory`.

        `by`: category, op, module, line, phase or shape. `device`: "GPU 0", "CPU", …; by default the GPU with the
        highest peak. Raises TraceError where memory was not recorded (profile_memory=True).
        """
        with translate_errors():
            device = check_optional(check_text, "device", device)
            rank = self._model.all_ranks[0].numbered_trace
            return tables.find_alive_memory(rank, at, by, device)

    def memory_curve(self, device: str | None = None) -> tables.MemoryCurve:
        """Return the allocated and reserved bytes of a device over time, as the records have them."""
        with translate_errors():
            device = check_optional(check_text, "device", device)
            rank = self._model.all_ranks[0].numbered_trace
            return tables.read_memory_curve(rank, device)

    def critical_path(
        self,
        *,
        step: int | None = None,
        start_ns: int | None = None,
        end_ns: int | None = None,
        rank: int | None = None,
    ) -> CriticalPath:
        """Return what limits step number `step`, by default the one of median duration: `torchprof-tui critical-path`.

        With `start_ns` or `end_ns` what limits that range. Of several ranks it is the path of all: from one rank to the
        one that it waited for in a collective. `rank`: number of the only one to look at; its rows are those of its own
        trace.
        """
        with translate_errors():
            start, end = _check_range(start_ns, end_ns)
            step, rank = check_optional(check_number, "step", step), check_optional(check_number, "rank", rank)
            return checks.read_critical_path(self._model, step, start, end, rank)

    def what_if(self, scenarios: str | Sequence[str], *, step: int | None = None) -> WhatIf:
        """Predict step number `step`, by default the one of median duration, with these changes together.

        `scenarios`: one or several, as `torchprof-tui what-if --set` takes them, such as "class=gemm*0.5" or "sync=0".
        Several ranks are replayed together.
        """
        with translate_errors():
            step = check_optional(check_number, "step", step)
            if isinstance(scenarios, str):
                scenarios = [scenarios]
            elif not isinstance(scenarios, (list, tuple)) or not all(isinstance(each, str) for each in scenarios):
                raise reject("scenarios", scenarios, 'give one text or several, such as ["class=gemm*0.5", "sync=0"]')
            return checks.predict_step(self._model, scenarios, step)

    def chain(self, event: int | str | Event, *, nth: int = 0, all_steps: bool = False) -> Chain:
        """Return the dispatch chain of an event: `torchprof-tui chain`.

        `event`: a row, an `Event`, or a name: then the `nth` event of this name in time, from 0. `all_steps`: with
        `steps`, one row per step; raises TraceError where the event is in no step.
        """
        with translate_errors():
            row, all_steps = self._row_of(event, nth), check_flag("all_steps", all_steps)
            return checks.follow_chain(self._model, self._lines, row, all_steps)

    def args(self, event: int | str | Event, *, nth: int = 0) -> dict[str, Any]:
        """Read all args of an event from the file; `event`, `nth`: as in `chain`."""
        with translate_errors():
            return self._model.event(self._row_of(event, nth)).read_args()

    def check(self, start_ns: int | None = None, end_ns: int | None = None) -> Check:
        """Check the trace, or a range of it, for everything of the cheatsheet: `torchprof-tui check`."""
        with translate_errors():
            return checks.check_range(self._model, *_check_range(start_ns, end_ns))

    def diff(
        self,
        other: Trace,
        *,
        by: DiffBy = "op",
        steps: tuple[int, int] | None = None,
        other_steps: tuple[int, int] | None = None,
        ranks: tuple[int | None, int | None] = (None, None),
    ) -> Diff:
        """Return what changed from this trace to another: `torchprof-tui diff`.

        `by`: how calls are matched: op, module or kernel. `steps`, `other_steps`: numbers of the first and the last
        compared step, by default the steady ones. `ranks`: the rank of each side, by default the first common one.
        """
        with translate_errors():
            if not isinstance(other, Trace):
                raise reject("other", other, "give another trace, as tt.open() returns it")
            steps, other_steps = _check_steps("steps", steps), _check_steps("other_steps", other_steps)
            pair = check_pair("ranks", ranks, "give two numbers of ranks, one for each side")
            ranks = (check_optional(check_number, "ranks", pair[0]), check_optional(check_number, "ranks", pair[1]))
            return checks.compare_traces(self._model, other._model, ranks, (steps, other_steps), by)

    def temporal_breakdown(self) -> gpu_work.Rows:
        """Return the idle, computing and other time of each rank's GPUs, from the first GPU work to the last."""
        with translate_errors():
            return gpu_work.measure_temporal_breakdown(self._model)

    def kernel_breakdown(self) -> gpu_work.Rows:
        """Return count, sum, mean, extremes and deviation of each kernel by rank, with its type, longest first."""
        with translate_errors():
            return gpu_work.measure_kernel_breakdown(self._model)

    def queue_length(self) -> gpu_work.Rows:
        """Return how much launched work waits on each stream of each rank."""
        with translate_errors():
            return gpu_work.measure_queue_length(self._model)

    def launch_statistics(self) -> gpu_work.Rows:
        """Return each launch with its work: the time of the call, of the work, and the delay between both.

        `launch` and `work` are rows of the rank's own trace (`select_rank`).
        """
        with translate_errors():
            return gpu_work.list_launch_statistics(self._model)

    def overlap(self) -> gpu_work.Rows:
        """Return the share of each rank's communication during which it computed."""
        with translate_errors():
            return gpu_work.measure_overlap(self._model)

    def remarks(self) -> tuple[Remark, ...]:
        """Return what the doctor says of the file: lost, repaired, odd, not recorded (`torchprof-tui info`)."""
        with translate_errors():
            return checks.list_remarks(self._model)

    @cached_property
    def _profile(self) -> Profile:
        return tables.Profile(self._model.all_ranks[0].numbered_trace)

    @cached_property
    def _lines(self) -> SourceLineFinder:
        return checks.SourceLineFinder(self._model)

    def _row_of(self, event: int | str | Event, nth: int) -> int:
        nth = check_number("nth", nth)
        if isinstance(event, str):
            rows = self.events.find(event)
            if not 0 <= nth < len(rows):
                raise TraceError(f"nth={nth}: {event!r} occurs {len(rows):,} times; the first one is 0")
            return int(rows[nth])
        row = event.index if isinstance(event, Event) else event
        row = check_number("event", row, "give a row, an Event or a name")
        if not 0 <= row < len(self._model):
            raise TraceError(f"no event {row}: {self.label} has {len(self._model):,}")
        return row


def _check_range(start_ns: float | None, end_ns: float | None) -> tuple[int | None, int | None]:
    return check_optional(check_time, "start_ns", start_ns), check_optional(check_time, "end_ns", end_ns)


def _check_steps(name: str, steps: Any) -> tuple[int, int] | None:
    if steps is None:
        return None
    wanted = "give the numbers of the first and the last step, such as (3, 7)"
    first, last = (check_number(name, number, wanted) for number in check_pair(name, steps, wanted))
    if last < first:
        raise reject(name, steps, "the last step comes before the first")
    return first, last


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Raise TraceError in place of errors about the input: files that are gone, data that was not recorded, …"""
    try:
        yield
    except TraceError as error:
        error.args = (clean(str(error)),)  # names of files and events may hold control characters
        raise
    except (OutputError, LoadError, ConnectionLostError, UnreadableFileError) as error:
        raise TraceError(clean(str(error))) from error  # one line that says what is wrong
    except (OSError, LookupError) as error:
        raise TraceError(clean(format_error(error))) from error


Source = str | os.PathLike[str]


def open(source: Source | Iterable[Source], *, rank: int | None = None, cache: bool = True) -> Trace:  # noqa: A001
    """Open a trace: whatever `torchprof-tui` opens.

    `source`: a file (plain or compressed), a folder or a pattern of ranks, `sample:NAME`, `host:path`, a URL, "-" for
    stdin; or a list of files, the ranks of one run. `rank`: only this rank of a run. `cache`: use the cache of decoded
    traces. Prints nothing and asks nothing; ssh must connect without a password. Raises TraceError, with one line that
    says what is wrong.
    """
    specs = _list_specs(source)
    rank, cache = check_optional(check_number, "rank", rank), check_flag("cache", cache)
    with translate_errors(), SshConnections() as connections:
        try:
            opened = load_resolved(resolve_specs(specs), connections, ignore_progress, cache)
        except ValueError as error:  # a name with a zero byte
            raise error if isinstance(error, TraceError) else TraceError(str(error)) from error
    if cache and not opened.cached:
        prune_cache()
    trace = Trace(opened.trace, opened.cache_entry)
    return trace if rank is None else trace.select_rank(rank)


def _list_specs(source: Source | Iterable[Source]) -> list[str]:
    wanted = "give a path, a URL, host:path, sample:NAME, or a list of them"
    if isinstance(source, (str, os.PathLike)):
        sources: list[Source] = [source]
    elif isinstance(source, Iterable) and not isinstance(source, (bytes, bytearray, memoryview)):
        sources = [*source]
    else:
        raise reject("source", source, wanted)
    specs = [os.fspath(each) if isinstance(each, (str, os.PathLike)) else each for each in sources]
    if not all(isinstance(each, str) for each in specs):
        raise reject("source", source, wanted)
    if not specs:
        raise TraceError("nothing to open: the list is empty")
    return specs
