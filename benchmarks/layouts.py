"""Measure opening the same events in Kineto's layout and in the compact layouts that torch writes since 2.15.

    python -m benchmarks.layouts TRACE.json[.gz|.xz] [--megabytes 100] [--runs 5]

TRACE, which Kineto wrote, is repeated until its text has that size in Kineto's layout, and rewritten: an entry per line
(`export_chrome_trace(..., use_python_export=True)`), and all on one line with counters (the cuspy backend: power,
temperature and clocks, and one `Cycles` sample a kernel). Layouts are measured in turns, each run in a process of its
own; the result is nanoseconds an entry, as medians and as ratios to Kineto's layout. Ratios of processor time are the
steadier ones where other programs run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from benchmarks import generate
from benchmarks.measure import median

Entry = dict[str, Any]

_HEAD_KEYS = ("ph", "s", "cat", "name", "id", "pid", "tid")
_CUSPY_KERNEL_ARGS = {"est. achieved occupancy %", "warps per SM", "blocks per SM"}
"""Args of kernels that cuspy does not write."""

_CHILD = """
import json, os, sys, tempfile, time
from pathlib import Path
from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.sources.source import open_source

name, processes = sys.argv[1], int(sys.argv[2]) or None
with tempfile.TemporaryDirectory() as folder:
    source = open_source(name)
    start, cpu = time.perf_counter(), sum(os.times()[:4])
    decoded = decode_trace(source, Path(folder), process_count=processes)
    middle, middle_cpu, entries = time.perf_counter(), sum(os.times()[:4]), len(decoded.events)
    build_trace(decoded, name)
    print(json.dumps({
        "entries": entries, "bytes": decoded.size, "decode": middle - start,
        "decode_cpu": middle_cpu - cpu, "open": time.perf_counter() - start,
    }))
"""


def read_entries(path: Path) -> tuple[Entry, Iterator[Entry]]:
    """Read the header of a trace in Kineto's layout and its entries, one by one so that the memory does not grow."""
    text = path.read_bytes()
    start, end = text.index(generate.HEAD) + len(generate.HEAD), text.rindex(b"\n  ]")
    header: Entry = orjson.loads(text[: start - len(generate.HEAD)].rstrip().rstrip(b",") + b"}")
    return header, map(orjson.loads, _split(text[start:end]))


def _split(entries: bytes) -> Iterator[bytes]:
    offset = 0
    while (end := entries.find(b",\n  {\n", offset)) >= 0:
        yield entries[offset:end]
        offset = end + 1
    if entries[offset:].strip():
        yield entries[offset:]


def write_lines(source: Path, out: Path) -> int:
    """Rewrite as torch's Python export does: an entry per line, three decimals, spaces in args. Returns the entries."""
    header, entries = read_entries(source)
    count = 0
    with out.open("wb") as file:
        _write_header(file, header, b",\n")
        file.write(b'"traceEvents": [\n')
        for entry in entries:
            file.write(b",\n" * bool(count) + _format_line(entry))
            count += 1
        file.write(b'\n],\n"traceName": "x"\n}\n')
    return count


def _write_header(file: BinaryIO, header: Entry, end: bytes) -> None:
    file.write(b"{\n")
    for key, value in header.items():
        file.write(orjson.dumps(key) + b": " + orjson.dumps(value) + end)


def _format_line(entry: Entry) -> bytes:
    parts = [f'"{key}":{json.dumps(entry[key])}' for key in _HEAD_KEYS if key in entry]
    parts += [f'"{key}":{entry[key]:.3f}' for key in ("ts", "dur") if key in entry]
    parts += [f'"{key}":{json.dumps(entry[key])}' for key in ("bp",) if key in entry]
    if "args" in entry:
        parts.append(f'"args":{json.dumps(entry["args"])}')
    return ("{" + ",".join(parts) + "}").encode()


def write_one_line(source: Path, out: Path) -> int:
    """Rewrite as torch's cuspy backend does: one line, shortest decimals, and counters behind the events."""
    header, entries = read_entries(source)
    count, clock = 0, 1980
    kernels: list[float] = []
    with out.open("wb") as file:
        file.write(orjson.dumps(header)[:-1] + b',"traceEvents":[')
        for entry in entries:
            if entry.get("cat") == "kernel":
                kernels.append(entry["ts"])
                entry["args"] = {key: value for key, value in entry["args"].items() if key not in _CUSPY_KERNEL_ARGS}
            file.write(b"," * bool(count) + orjson.dumps(entry))
            count += 1
        for name, at, value in _sample_counters(kernels, clock):
            point = {"ph": "C", "name": name, "pid": "GPU 0 Counters", "ts": at, "args": {"": value}}
            file.write(b"," + orjson.dumps(point))
            count += 1
        file.write(b'],"traceName":"x"}')
    return count


def _sample_counters(kernels: list[float], clock: int) -> Iterable[tuple[str, float, float]]:
    """Samples of the environment, every hundredth kernel, and one of the cycles of each kernel."""
    for k, at in enumerate(kernels[::100]):
        yield "Power (W)", at, 312.125 + k % 200 / 8
        yield "Temperature (C)", at, float(40 + k % 9)
        yield "SM Clock (MHz)", at, float(clock)
    for k, at in enumerate(kernels):
        yield "SM Active (%)", at, 100 / (k % 97 + 1.5)
    for k, at in enumerate(kernels):
        yield "Cycles (Current Kernel)", at, clock * (k % 3571)


WRITERS: dict[str, Callable[[Path, Path], int]] = {"lines": write_lines, "one line": write_one_line}


def measure(trace: Path, processes: int) -> dict[str, float]:
    """Decode and build once in a process of its own; `processes`: that decode, 0 for as many as the program uses."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _CHILD, str(trace), str(processes)]
    done = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        kineto = Path(name) / "kineto.json"
        text = generate.read_text(options.trace)
        entries = int(text.count(b'"ph": ') * options.megabytes * 1e6 / len(text))
        generate.repeat_trace(options.trace, kineto, entries)
        files = {"kineto": kineto}
        for layout, write in WRITERS.items():
            files[layout] = kineto.with_name(layout.replace(" ", "-") + ".json")
            write(kineto, files[layout])
        for processes in (1, 0):
            _report(files, processes, options.runs)


def _report(files: dict[str, Path], processes: int, runs: int) -> None:
    results: dict[str, list[dict[str, float]]] = {layout: [] for layout in files}
    for _ in range(runs):
        for layout, path in files.items():
            results[layout].append(measure(path, processes))
    print(f"{'one process' if processes else 'as many processes as the program uses'}, medians of {runs} runs")
    base: dict[str, float] = {}
    for layout, measured in results.items():
        per_entry = {
            key: median([run[key] / run["entries"] for run in measured]) * 1e9
            for key in ("decode", "decode_cpu", "open")
        }
        base = base or per_entry
        print(
            f"  {layout:9} {measured[0]['bytes'] / 1e6:4.0f} MB {measured[0]['entries']:,.0f} entries: "
            + ", ".join(f"{key} {ns:,.0f} ns ({ns / base[key]:.2f})" for key, ns in per_entry.items())
        )


if __name__ == "__main__":
    main()
