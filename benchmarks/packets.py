"""Decode one recording from Perfetto protobuf and from JSON, in one process, in turn: MB/s and events/s of a core.

    python -m benchmarks.packets FOLDER [--runs 5]

FOLDER has `records.pftrace` and `records.json`, written by torch itself: `tools/pftrace_records.py`, with 100 copies of
a sample or more. Time is that of the process, not of the clock, so that other programs disturb it less.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.sources.source import open_source

MB = 1e6


@dataclass(frozen=True)
class DecodingSpeed:
    """Of one file: bytes of packets or of text, drawn entries, and the least CPU seconds of decoding and building."""

    size: int
    entries: int
    decode_seconds: float
    build_seconds: float

    def format_line(self, name: str) -> str:
        return (
            f"{name:16} {self.size / MB:7.1f} MB  {self.entries:9,} entries  decoded in {self.decode_seconds:.3f} s "
            f"({self.size / MB / self.decode_seconds:.0f} MB/s, {self.entries / self.decode_seconds / 1e6:.2f} M/s), "
            f"built in {self.build_seconds:.3f} s"
        )


def measure_files(paths: list[Path], runs: int) -> list[DecodingSpeed]:
    """Measure files in turn, `runs` times each."""
    best: list[list[float]] = [[float("inf"), float("inf")] for _ in paths]
    sizes = [(0, 0) for _ in paths]
    for _ in range(runs):
        for index, path in enumerate(paths):
            with tempfile.TemporaryDirectory() as folder:
                began = time.process_time()
                decoded = decode_trace(open_source(str(path)), Path(folder), process_count=1)
                middle = time.process_time()
                size = decoded.size
                trace = build_trace(decoded, path.name)
                seconds = middle - began, time.process_time() - middle
            best[index] = [min(pair) for pair in zip(best[index], seconds, strict=True)]
            sizes[index] = size, trace.counts.drawn
    return [DecodingSpeed(*size, *seconds) for size, seconds in zip(sizes, best, strict=True)]


def main() -> None:
    """Print a line for each file, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    names = ["records.pftrace", "records.json"]
    packets, text = measure_files([options.folder / name for name in names], options.runs)
    for name, speed in zip(names, (packets, text), strict=True):
        print(speed.format_line(name))
    print(f"packets take {packets.decode_seconds / text.decode_seconds:.2f} of the time of JSON")


if __name__ == "__main__":
    main()
