"""Sketch traces with processes of this machine, each with one trace at a time; or on the workers of a Dask scheduler.

Dask distributes, retries and reports; a worker needs this program with the extra `fleet`, and the same paths, hosts or
buckets.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from torchprof_fleet.analysis.sketch_task import SketchResult, run_sketch_task
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.extensions import import_extra
from torchprof_tui.trace.core.process_state import JOBS, lower_priority
from torchprof_tui.trace.specs.address import ListedTrace

WAITING_PER_PROCESS = 4
"""Traces handed to the pool beyond those in work: none waits for the main process, and few are lost with a pool."""

KILLED = "the process that read it was killed; too little memory?"

POLL_SECONDS = 0.2  # seconds after which it is noticed that this was cancelled


def sketch_locally(
    traces: Sequence[ListedTrace], is_cancelled: Callable[[], bool], jobs: int
) -> Iterator[SketchResult]:
    """Sketch traces with `jobs` processes; one that may have killed a process is tried again, alone."""
    rest = list(traces)
    while rest:
        suspects: list[ListedTrace] = []
        yield from _run_pool(rest, min(jobs, len(rest)), suspects, is_cancelled)
        if is_cancelled():
            return
        for trace in suspects:
            killed: list[ListedTrace] = []
            yield from _run_pool([trace], 1, killed, is_cancelled)
            yield from (SketchResult(each.spec, reason=f"{each.spec}: {KILLED}") for each in killed)


def _run_pool(
    rest: list[ListedTrace], jobs: int, suspects: list[ListedTrace], is_cancelled: Callable[[], bool]
) -> Iterator[SketchResult]:
    """Sketch traces from the end of `rest`, which is emptied, until a process is killed: `suspects` were in work."""
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start_process)
    running: dict[Future[SketchResult], ListedTrace] = {}
    try:
        while rest or running:
            if is_cancelled():  # at once: a large trace takes many seconds (Python 3.14 has `kill_workers`)
                for process in list((pool._processes or {}).values()):
                    process.kill()
                return
            while rest and len(running) < jobs * WAITING_PER_PROCESS:
                running[pool.submit(run_sketch_task, rest[-1].spec, rest[-1].identity)] = rest[-1]
                rest.pop()
            for future in wait(running, POLL_SECONDS, FIRST_COMPLETED).done:
                result = future.result()
                del running[future]
                yield result
    except BrokenProcessPool:
        for future, trace in running.items():
            if future.done() and future.exception() is None:
                yield future.result()
            else:
                suspects.append(trace)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_process() -> None:
    """Read each trace with one core: the others have traces of their own."""
    os.environ[JOBS] = "1"
    lower_priority()


CONNECT_SECONDS = 20

RETRIES = 3
"""How often a trace is tried again after an error of a worker; one that ends is replaced by Dask without this."""

CLUSTER_POLL_SECONDS = 0.05  # seconds between looks for results of a cluster, and for whether this was cancelled


def sketch_on_cluster(
    traces: Sequence[ListedTrace], is_cancelled: Callable[[], bool], address: str
) -> Iterator[SketchResult]:
    """Sketch traces on the workers of a scheduler, each result as it comes. Raises TraceError where it has none."""
    distributed = import_extra("distributed", "fleet")
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise TraceError(f"--on {address}: no Dask scheduler answers ({' '.join(str(error).split())[:120]})") from error
    if not client.scheduler_info()["workers"]:
        client.close()
        raise TraceError(f"--on {address}: the scheduler has no workers; start some: dask worker {address}")
    try:
        specs, identities = [trace.spec for trace in traces], [trace.identity for trace in traces]
        futures = client.map(run_sketch_task, specs, identities, pure=False, retries=RETRIES)
        spec_of = {future.key: spec for future, spec in zip(futures, specs, strict=True)}
        pending = distributed.as_completed(futures, loop=client.loop)
        del futures  # a result that has been read is released, here and on its worker
        while not is_cancelled() and not pending.is_empty():
            if not pending.has_ready():
                time.sleep(CLUSTER_POLL_SECONDS)
                continue
            for future in pending.next_batch(block=False):
                failure, spec = future.exception(), spec_of[future.key]
                if failure is None:
                    yield future.result()
                else:
                    reason = f"({type(failure).__name__}: {' '.join(str(failure).split())[:200]})"
                    yield SketchResult(spec, reason=f"{spec}: its worker failed {reason}")
    finally:
        client.close()  # cancels what is not done
