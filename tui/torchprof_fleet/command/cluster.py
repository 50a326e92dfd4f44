"""Sketch traces on the workers of a Dask scheduler, where the files lie. Needs the extra `fleet`.

Dask distributes, retries and reports; a worker needs this program, and the same paths, hosts or buckets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torchprof_fleet.analysis.sketch_task import SketchResult, run_sketch_task
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.optional_modules import import_extra
from torchprof_tui.trace.specs.address import ListedTrace

EXTRA = "fleet"

CONNECT_SECONDS = 20

RETRIES = 3
"""How often a trace is tried again after an error of a worker; one that ends is replaced by Dask without this."""


POLL_SECONDS = 0.05
"""Seconds between looks for results, and for whether this was cancelled."""


def sketch_on_cluster(
    traces: Sequence[ListedTrace], is_cancelled: Callable[[], bool], address: str
) -> Iterator[SketchResult]:
    """Sketch traces on the workers of a scheduler, each result as it comes. Raises TraceError where it has none."""
    distributed = import_extra("distributed", EXTRA)
    client = _connect(distributed, address)
    try:
        specs, identities = [trace.spec for trace in traces], [trace.identity for trace in traces]
        futures = client.map(run_sketch_task, specs, identities, pure=False, retries=RETRIES)
        spec_of = {future.key: spec for future, spec in zip(futures, specs, strict=True)}
        pending = distributed.as_completed(futures, loop=client.loop)
        del futures  # a result that has been read is released, here and on its worker
        while not is_cancelled() and not pending.is_empty():
            if not pending.has_ready():
                time.sleep(POLL_SECONDS)
                continue
            for future in pending.next_batch(block=False):
                yield _read_result(future, spec_of[future.key])
    finally:
        client.close()  # cancels what is not done


def _connect(distributed: Any, address: str) -> Any:
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise TraceError(f"--on {address}: no Dask scheduler answers ({' '.join(str(error).split())[:120]})") from error
    if not client.scheduler_info()["workers"]:
        client.close()
        raise TraceError(f"--on {address}: the scheduler has no workers; start some: dask worker {address}")
    return client


def _read_result(future: Any, spec: str) -> SketchResult:
    error = future.exception()
    if error is not None:
        reason = " ".join(str(error).split())[:200]
        return SketchResult(spec, reason=f"{spec}: its worker failed ({type(error).__name__}: {reason})")
    result: SketchResult = future.result()
    return result
