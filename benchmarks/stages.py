"""Where the time goes between the bytes of a trace and its columns, and the floor under it: what nobody can be faster
than who has to read all bytes once, and to inflate them once.

    python -m benchmarks.stages TRACE

prints seconds as JSON, of one run in a process of its own. The text is read from the page cache.
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

BLOCK = 1 << 20


@dataclass(frozen=True)
class Stages:
    """Seconds. `read_bytes`, `inflate`: the floors. `processes` read it in `decode`, one in `decode_alone`. `store`:
    what is written when all is worked out; most columns lie in the file from the beginning."""

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
        """Sort, rows, parents, self time, links, level of detail."""
        return self.assemble + self.index


def measured(trace: Path, runs: int) -> Stages:
    """Medians, each run in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.stages", str(trace)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # as the loader has it
    found = [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)
        for _ in range(runs)
    ]
    middle = {key: median([each[key] for each in found]) for key in found[0]}
    return Stages(**{**middle, "processes": found[0]["processes"], "events": found[0]["events"]})


class _Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - began


def _inflate(trace: Path) -> None:
    from torchprof_tui.trace.sources.decompress import DECOMPRESSORS, MAGIC_BYTES, detect_compression
    from torchprof_tui.trace.sources.replay import ReplayBuffer

    with trace.open("rb", buffering=0) as file:
        kind = detect_compression(file.read(MAGIC_BYTES))
        if not kind:
            return
    with trace.open("rb", buffering=0) as file:
        inflater = DECOMPRESSORS[kind](ReplayBuffer(trace))
        while packed := file.read(BLOCK):
            for _ in inflater.feed(packed):
                pass


def _one_run(trace: Path) -> Stages:
    clock = _Clock()
    with clock.timed("imports"):
        from torchprof_tui.trace.build.build_trace import add_row_index, build_trace
        from torchprof_tui.trace.decode.decoder import decode_trace
        from torchprof_tui.trace.decode.parallel import choose_process_count
        from torchprof_tui.trace.sources.open import open_source
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
        with TraceWriter(folder) as storing:
            with clock.timed("assemble"):
                built = build_trace(decoded, "", storing.allocate)
            del decoded
            with clock.timed("index"):
                built = add_row_index(built, storing.allocate)
            with clock.timed("store"):
                storing.finish(built)
        events = len(built.start)
        del built
        with clock.timed("map"):
            open_trace(folder)
        return Stages(processes=processes, events=events, **clock.seconds)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    import gc

    gc.disable()  # as the loader does
    print(json.dumps(asdict(_one_run(Path(sys.argv[1])))))
