"""Measure opening one large trace on different numbers of cores.

    python -m benchmarks.cores [--events 5000000] [--cores 1,2,4,8,16] [--runs 3] [--trace TRACE] [--out cores.md]
                               [--layout kineto|lines|one-line] [--sizes 1000000,10000000,50000000] [--keep]
                               [--threads 16]

Without TRACE, a sample trace is repeated until it has that many events, and its .gz is made beside it. Each run is a
process of its own that may use only so many cores (`sched_setaffinity`), takes the file from the page cache, and ends
after the columns are written. Columns of the table, as medians: seconds to decode; to build (sort, nest, link); from
the start of the process to all lanes (drawing index included); to write what is left; how much of building and indexing
one core did alone (`growth.estimate_serial_seconds`), and its share of the time to all lanes; how often a thread waited
there, mostly for the GIL (voluntary context switches); efficiency against one core and against two; the peak memory of
all processes. Then the longest stages of the build on the most cores.

With --sizes, each size is opened on the most cores instead: how time and memory grow (`growth.py`). `--layout`: as
torch 2.15 writes a trace (`layouts.py`). `--threads`: instead of `thread_tasks.MAX_THREADS`. Generated files are
removed afterwards, unless --keep is given.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import generate, layouts
from benchmarks.growth import estimate_serial_seconds, format_growth
from benchmarks.measure import PeakMemory, median, read_once

_SAMPLE = Path(__file__).parents[1] / "sample_traces/torchprof_samples/train_gpt_stack_memory.pt.trace.json.gz"

_STAGES = (
    "restrict_values",
    "classify_entries",
    "select_drawn_events",
    "normalize_timestamps",
    "counters.build_counter_series",
    "_assign_lanes",
    "_sort_times",
    "_start_nesting",
    "invert_order",
    "collect_sparse_columns",
    "_copy_names_and_correlations",
    "_count_by_category",
    "_collect_steps",
    "_link_events",
    "counters.build_memory_table",
    "nesting.nest_lanes",
    "nesting.compute_self_durations",
    "_lay_out",
)
"""Functions that `build_trace` calls, whose time is measured."""

_THREADS = "CORES_THREADS"
"""Environment variable of the processes that are measured: `--threads`."""

Result = dict[str, Any]


def _time_stages(build_module: Any, decode_classes: Sequence[tuple[type, str]], seconds: dict[str, float]) -> None:
    """Replace the stages of `build_trace`, and these methods, by functions that add up their seconds."""

    def wrap(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start

        return timed

    for name in _STAGES:
        owner, _, attribute = name.rpartition(".")
        target = getattr(build_module, owner) if owner else build_module
        if hasattr(target, attribute):
            setattr(target, attribute, wrap(name, getattr(target, attribute)))
    for owner_class, attribute in decode_classes:
        name = f"{owner_class.__name__}.{attribute}"
        setattr(owner_class, attribute, wrap(name, getattr(owner_class, attribute)))


def _run_once(trace: str) -> Result:
    """Decode and store a trace in this process. Returns seconds; `lanes_at` is a time of the system's clock."""
    from torchprof_tui.trace.build import build_trace as build_module  # deferred: part of what is measured
    from torchprof_tui.trace.core import thread_tasks
    from torchprof_tui.trace.core.process_state import count_cores, pause_garbage_collection
    from torchprof_tui.trace.decode.column_builder import ColumnBuilder
    from torchprof_tui.trace.decode.entry_decoder import EntryDecoder
    from torchprof_tui.trace.decode.general_decoder import decode_trace
    from torchprof_tui.trace.decode.parallel import ParallelDecoder, _Worker, choose_process_count
    from torchprof_tui.trace.sources.source import open_source
    from torchprof_tui.trace.storage.trace_store import TraceWriter

    thread_tasks.MAX_THREADS = int(os.environ.get(_THREADS, thread_tasks.MAX_THREADS))
    stages: dict[str, float] = {}
    methods = [(EntryDecoder, "decode_list"), (ParallelDecoder, "append_parts"), (ColumnBuilder, "finish")]
    _time_stages(build_module, [*methods, (EntryDecoder, "text_index"), (_Worker, "read_columns")], stages)
    with tempfile.TemporaryDirectory() as folder, pause_garbage_collection():
        source = open_source(trace)
        processes = choose_process_count(source)
        marks, cpu, waits = [time.monotonic()], [0.0], [0]
        decoded = decode_trace(source, Path(folder), defer_blocks=True)
        marks.append(time.monotonic())
        cpu.append(time.process_time())
        waits.append(resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw)
        with TraceWriter(Path(folder)) as writer:
            built = build_module.build_trace(decoded, trace, writer.allocate)
            del decoded
            marks.append(time.monotonic())
            built = build_module.add_row_index(built, writer.allocate)
            marks.append(time.monotonic())
            cpu.append(time.process_time())
            waits.append(resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw)
            writer.finish(built)
        marks.append(time.monotonic())
        events = len(built.start)
        del built
    decode, build, index, store = (after - before for before, after in pairwise(marks))
    return {
        "processes": processes,
        "events": events,
        "decode": decode,
        "build": build,
        "index": index,
        "store": store,
        "serial": estimate_serial_seconds(build + index, cpu[-1] - cpu[-2], count_cores()),
        "waits": waits[-1] - waits[-2],
        "lanes_at": marks[3],
        "stages": stages,
    }


def measure(trace: Path, cores: Sequence[int], runs: int) -> list[Result]:
    """Measure a trace on each number of cores: medians of some runs."""
    results = []
    for count in cores:
        found = [_measure_run(trace, count) for _ in range(runs)]
        keys = ("decode", "build", "index", "store", "serial", "waits", "lanes", "memory")
        result = {**found[0], **{key: median([run[key] for run in found]) for key in keys}}
        result["stages"] = {
            name: median([run["stages"].get(name, 0.0) for run in found]) for name in found[0]["stages"]
        }
        results.append({"cores": count, **result})
        print(f"{trace.name}: {count} cores, {result['lanes']:.2f} s", file=sys.stderr, flush=True)
    return results


def _measure_run(trace: Path, cores: int) -> Result:
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    read_once(trace)
    start = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.cores", "--child", str(trace)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # as in the loader
        preexec_fn=lambda: os.sched_setaffinity(0, allowed),
    )
    with PeakMemory(process.pid) as peak:
        out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{trace.name}: a run ended with exit status {process.returncode}")
    result: Result = json.loads(out)
    lanes = result.pop("lanes_at") - start
    return {**result, "lanes": lanes, "memory": peak.bytes, "bytes": trace.stat().st_size, "curve": peak.samples}


def format_table(name: str, results: Sequence[Result]) -> str:
    """Format the results of one trace as Markdown."""
    lines = [
        f"### {name}, {results[0]['events']:,} events",
        "",
        "| cores | processes | decode s | build s | index s | lanes s | store s | serial s | share | waits "
        "| efficiency to 1 | to 2 | peak GB |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    seconds = {result["cores"]: result["lanes"] for result in results}
    for result in results:
        shares = [
            f"{seconds[base] * base / result['lanes'] / result['cores']:.2f}"
            if base in seconds and result["cores"] >= base
            else "–"
            for base in (1, 2)
        ]
        times = [f"{result[key]:.2f}" for key in ("decode", "build", "index", "lanes", "store", "serial")]
        times += [f"{result['serial'] / result['lanes']:.2f}", f"{result['waits']:,.0f}"]
        cells = [result["cores"], result["processes"], *times, *shares, f"{result['memory'] / 1e9:.2f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    fewest, most = results[0], results[-1]
    lines += [
        "",
        f"Stages (some run side by side), seconds on {fewest['cores']} and on {most['cores']} cores:",
        "",
    ]
    for stage, spent in sorted(most["stages"].items(), key=lambda item: -item[1]):
        if max(spent, fewest["stages"].get(stage, 0.0)) >= 0.005:
            lines.append(f"- `{stage}` {fewest['stages'].get(stage, 0.0):.3f}, {spent:.3f}")
    return "\n".join(lines) + "\n"


def _generate_trace(folder: Path, events: int, layout: str) -> Path:
    """Generate a trace with this number of events from the sample, unless it is there already."""
    trace = folder / f"cores-{layout}-{events}.json"
    if not trace.exists():
        sample = _SAMPLE
        if layout != "kineto":
            plain = folder / "sample-kineto.json"
            plain.write_bytes(generate.read_text(_SAMPLE))
            sample = folder / f"sample-{layout}.json"
            layouts.WRITERS[layout.replace("-", " ")](plain, sample)
        count = generate.repeat_trace(sample, trace, events)
        print(f"generated {count:,} events, {trace.stat().st_size / 1e6:,.0f} MB", file=sys.stderr, flush=True)
    return trace


def _measure_sizes(options: argparse.Namespace, cores: int) -> str:
    """Measure each size of --sizes on this number of cores."""
    results = []
    for events in map(int, options.sizes.split(",")):
        trace = _generate_trace(options.folder, events, options.layout)
        results += measure(trace, [cores], options.runs)
        if not options.keep:
            trace.unlink()
    options.out.with_suffix(".json").write_text(json.dumps(results))
    return f"### Sizes, {options.layout} layout\n\n{format_growth(results)}"


def _prepare_traces(folder: Path, trace: Path | None, events: int, layout: str) -> list[Path]:
    """Generate the trace if none is given, and its .gz beside it."""
    trace = trace or _generate_trace(folder, events, layout)
    compressed = trace.with_name(trace.name + ".gz")
    if trace.suffix != ".json" or layout != "kineto":
        return [trace]
    if not compressed.exists():
        with trace.open("rb") as text, gzip.open(compressed, "wb", compresslevel=1) as out:
            shutil.copyfileobj(text, out, 1 << 20)
    return [trace, compressed]


def main() -> None:
    """Measure and print the tables, and write them and the numbers to files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--cores", default="1,2,4,8,16")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--out", type=Path, default=Path("cores.md"))
    parser.add_argument("--layout", choices=("kineto", "lines", "one-line"), default="kineto")
    parser.add_argument("--sizes")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(_run_once(options.child)))
        return
    if options.threads:
        os.environ[_THREADS] = str(options.threads)
    most = len(os.sched_getaffinity(0))
    cores = [count for count in map(int, options.cores.split(",")) if count <= most]
    if options.sizes:
        table = _measure_sizes(options, cores[-1])
        print(table, flush=True)
        options.out.write_text(table)
        return
    tables, numbers = [], {}
    traces = _prepare_traces(options.folder, options.trace, options.events, options.layout)
    for trace in traces:
        numbers[trace.name] = measure(trace, cores, options.runs)
        tables.append(format_table(trace.name, numbers[trace.name]))
        print(tables[-1], flush=True)
    for trace in traces:
        if not options.keep and not options.trace:
            trace.unlink()
    options.out.write_text("\n".join(tables))
    options.out.with_suffix(".json").write_text(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
