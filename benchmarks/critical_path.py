"""Measure how well the dependency graph replays recorded steps: `python -m benchmarks.critical_path [TRACE…]`

    python -m benchmarks.critical_path --large TRACE…     # CPU time of one step: graph and path, what-if

Without arguments: all samples and the shared traces, where they are. Prints a Markdown table, one line for each trace
(its step of median duration, of several files of a run the first rank), and the quantiles of the errors.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

import torchprof_tui
from tests.helpers.paths import SAMPLES, find_shared_traces
from torchprof_tui.analysis.critical_path.build_graph import sum_earlier
from torchprof_tui.analysis.critical_path.critical_path import CriticalPath, find_critical_path
from torchprof_tui.analysis.critical_path.dependency_graph import DELAYED_KINDS, EdgeKind, find_path, replay_graph
from torchprof_tui.analysis.what_if.forecast import Forecaster
from torchprof_tui.analysis.what_if.step_model import build_step_model
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--large", action="store_true", help="measure the CPU time of one step of each trace instead")
    options = parser.parse_args()
    if options.large:
        print(
            "| trace | events of the step | graph and path | model of the step, once | what-if: cpu | class | graph |"
        )
        print("|---" * 7 + "|")
        for path in options.traces:
            print(_measure_large_step(path))
        return
    paths = options.traces or [*sorted(SAMPLES.rglob("*.json.gz")), *find_shared_traces()]
    print("| trace | events | step | error | with median delays | from before | inferred | sync events | seconds |")
    print("|---" * 9 + "|")
    errors: list[float] = []
    stricter: list[float] = []
    with_sync: list[float] = []
    left_out = 0
    for path in paths:
        try:
            with torchprof_tui.open(path) as trace:
                begin = time.perf_counter()
                found = trace.critical_path()
                seconds = time.perf_counter() - begin
                has_sync = bool((trace._model.kind == Kind.SYNC).any())
        except TraceError:
            left_out += 1
            continue
        if not len(found.window.work):
            left_out += 1  # a thread alone is replayed exactly
            continue
        errors.append(abs(found.replay_error))
        stricter.append(abs(_replay_with_medians(found)))
        with_sync += [errors[-1]] if has_sync else []
        print(_format_line(path, found, has_sync, seconds))
    print(f"\n{len(errors)} traces with GPU work in the step; {left_out} others left out.")
    for label, values in (("all", errors), ("with sync events", with_sync), ("median delays", stricter)):
        if values:
            median, high = np.quantile(values, (0.5, 0.95))
            print(f"{label}: median error {median:.2%}, 95th percentile {high:.2%} ({len(values)} traces)")


def _measure_large_step(path: Path) -> str:
    """Measure the CPU time of a path and of three what-ifs, the least of several, and format a row."""
    with torchprof_tui.open(path) as trace:
        found, seconds = _measure_least(lambda: find_critical_path(trace._model))
        model, once = _measure_least(lambda: build_step_model(trace._model, None), 1)
        forecaster = Forecaster(model)
        forecaster.unchanged  # noqa: B018 - computed once for all scenarios
        times = [
            _measure_least(partial(forecaster.predict, [change]))[1]
            for change in ("cpu=0.5", "class=gemm*0.5", "launch=graph")
        ]
        cells = [path.name.partition(".")[0], f"{len(found.event):,}"]
        return f"| {' | '.join([*cells, *(f'{each * 1000:.0f} ms' for each in (seconds, once, *times))])} |"


def _measure_least(call: Callable[[], T], rounds: int = 5) -> tuple[T, float]:
    """Return a result and the least CPU seconds of some calls."""
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        result = call()
        times.append(time.process_time() - begin)
    return result, min(times)


def _replay_with_medians(path: CriticalPath) -> float:
    """Replay with the median latency of each kind of edge instead of each edge's own, and return the error."""
    graph = path.graph
    delay = graph.delay.copy()
    for kind in (*DELAYED_KINDS, EdgeKind.CALL):
        edges = graph.edge_kind == kind
        decided = edges & graph.is_binding
        delay[edges] = int(np.median(graph.delay[decided])) if decided.any() else 0
    return float(replay_graph(graph, delay).max() - path.window.end) / path.duration


def _find_earlier(path: CriticalPath) -> float:
    """Find the share of the path in which a stream did work from before the recording."""
    return sum_earlier(path.graph, find_path(path.graph), path.window.begin) / path.duration


def _format_line(path: Path, found: CriticalPath, has_sync: bool, seconds: float) -> str:
    name = f"{path.parent.name}/{path.name}" if path.parent.name != SAMPLES.name else path.name
    cells = (
        name.removesuffix(".gz").removesuffix(".json").removesuffix(".pt.trace"),
        f"{len(found.event):,}",
        format_duration(found.duration),
        f"{found.replay_error * 100:.2f} %",
        f"{_replay_with_medians(found) * 100:.2f} %",
        f"{_find_earlier(found):.0%}" if _find_earlier(found) else "",
        str(found.inferred),
        "yes" if has_sync else "",
        f"{seconds:.3f}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
