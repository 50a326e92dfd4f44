"""Measure the stages between the bytes of a trace and its columns, and their lower bound.

The bound, the floor, is the time to read all bytes once and to decompress them once.

    python -m benchmarks.stages TRACE

prints the seconds of one run as JSON. The file is read from the page cache.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.measure import median, read_once
from torchprof_tui.trace.core.process_state import pause_garbage_collection

BLOCK = 1 << 20


@dataclass(frozen=True)
class Stages:
    """Seconds. `read_bytes`, `inflate`: the floor. `decode` uses `processes` processes, `decode_alone` one. `store`:
    what remains to be written at the end; most columns are in the file from the beginning.
    """

    read_bytes: float
    inflate: float
    imports: float
    decode_alone: float
    decode: float
    processes: int
    assemble: float
    index: float
    store: float
    map: float
    events: int

    @property
    def floor(self) -> float:
        return self.read_bytes + self.inflate

    @property
    def after_decoding(self) -> float:
        """Sorting, rows, parents, self times, links, level of detail."""
        return self.assemble + self.index


def measure(trace: Path, runs: int) -> Stages:
    """Measure medians, each run in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.stages", str(trace)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # as in the loader
    results = [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)
        for _ in range(runs)
    ]
    medians = {key: median([result[key] for result in results]) for key in results[0]}
    return Stages(**{**medians, "processes": results[0]["processes"], "events": results[0]["events"]})


class _Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start


def _inflate(trace: Path) -> None:
    # deferred: `_one_run` measures the imports
    from torchprof_tui.trace.sources.decompress import MAGIC_BYTES, Decompressor, ReplayBuffer, detect_compression

    with trace.open("rb", buffering=0) as file:
        kind = detect_compression(file.read(MAGIC_BYTES))
        if not kind:
            return
    with trace.open("rb", buffering=0) as file:
        decompressor = Decompressor(kind, ReplayBuffer(trace))
        while block := file.read(BLOCK):
            for _ in decompressor.feed(block):
                pass


def _one_run(trace: Path) -> Stages:
    clock = _Clock()
    with clock.timed("imports"):
        from torchprof_tui.trace.build.build_trace import add_row_index, build_trace
        from torchprof_tui.trace.decode.general_decoder import decode_trace
        from torchprof_tui.trace.decode.parallel import choose_process_count
        from torchprof_tui.trace.sources.source import open_source
        from torchprof_tui.trace.storage.trace_store import TraceWriter, open_trace
    read_once(trace)
    with clock.timed("read_bytes"):
        read_once(trace)
    with clock.timed("inflate"):
        _inflate(trace)
    clock.seconds["inflate"] = max(clock.seconds["inflate"] - clock.seconds["read_bytes"], 0.0)
    folder = Path(tempfile.mkdtemp())
    try:
        with clock.timed("decode_alone"):
            decode_trace(open_source(str(trace)), folder, process_count=1)
        source = open_source(str(trace))
        processes = choose_process_count(source)
        with clock.timed("decode"):
            decoded = decode_trace(source, folder)
        with TraceWriter(folder) as writer:
            with clock.timed("assemble"):
                built = build_trace(decoded, "", writer.allocate)
            del decoded
            with clock.timed("index"):
                built = add_row_index(built, writer.allocate)
            with clock.timed("store"):
                writer.finish(built)
        events = len(built.start)
        del built
        with clock.timed("map"):
            open_trace(folder)
        return Stages(processes=processes, events=events, **clock.seconds)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    with pause_garbage_collection():  # as in the loader
        print(json.dumps(asdict(_one_run(Path(sys.argv[1])))))
