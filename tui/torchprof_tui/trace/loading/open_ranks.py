"""The openers of several ranks, and of remote names, which their hosts list first.

Each rank is mapped from the cache or decoded by a pool of workers, then all are merged.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import subprocess
import traceback
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from torchprof_tui.trace.core.errors import TraceError, format_error
from torchprof_tui.trace.core.process_state import count_cores
from torchprof_tui.trace.loading.cleanup import clean_up_in_thread
from torchprof_tui.trace.loading.open_or_build import BuildResult, OpeningState, open_or_build_async
from torchprof_tui.trace.loading.opener import SingleTraceOpener, TraceOpener
from torchprof_tui.trace.loading.progress import (
    FAILED_SHARE,
    LoadError,
    Phase,
    Progress,
    RanksProgress,
    Report,
    WorkerExitError,
)
from torchprof_tui.trace.loading.worker_process import Task, WorkerProcess
from torchprof_tui.trace.model.ranks import LostRank
from torchprof_tui.trace.sources.listing import Listing, listing_from_json
from torchprof_tui.trace.specs.address import ListedTrace, host_of, is_remote
from torchprof_tui.trace.specs.rank_files import NotRanksError, RankFile, rank_of, resolve_rank_files
from torchprof_tui.trace.specs.runs_by_name import group_recordings
from torchprof_tui.trace.storage.disk_cache import CacheEntry

if TYPE_CHECKING:
    from pathlib import Path

    from torchprof_tui.trace.model.trace import Trace
    from torchprof_tui.trace.ranks.collective_matching import Collectives
    from torchprof_tui.trace.ranks.merge import OpenedRank

MAX_WORKERS = count_cores()  # workers that decode at the same time

_DESCRIPTORS_PER_RANK, _OTHER_DESCRIPTORS = 4, 256
"""Open files while ranks are read: the lock and the columns of each, and the pipes of its worker."""

MAX_WORKERS_PER_HOST = 4
"""Traces that are fetched from one host at the same time: a server takes ten sessions over one connection, and refuses
some of ten that begin at once (sshd's MaxSessions and MaxStartups)."""


def raise_descriptor_limit(ranks: int) -> None:
    """Allow this process to open the files of so many ranks, as far as the hard limit lets it."""
    needed = _OTHER_DESCRIPTORS + _DESCRIPTORS_PER_RANK * ranks
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY not in (soft, hard) and soft < min(needed, hard):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard), hard))


class WorkerPool:
    """At most `size` workers that decode many traces: starting Python takes longer than a short trace does.

    Any number of tasks may call `decode_trace`; they wait for a free worker.
    """

    def __init__(self, size: int) -> None:
        self._idle: list[WorkerProcess] = []
        self._workers: list[WorkerProcess] = []
        self._free_slots = asyncio.Semaphore(max(size, 1))

    async def decode_trace(self, spec: str, folder: Path, report: Report) -> BuildResult:
        """Decode a trace and its collectives into a folder. Raises LoadError, and OSError where no worker starts.

        A worker is used again after an error that it reports. A cancelled one has ended when this returns.
        """
        async with self._free_slots:
            if self._idle:
                worker = self._idle.pop()
            else:
                worker = WorkerProcess(Task.SERVE, stdin=subprocess.PIPE)
                worker.start()
                self._workers.append(worker)
            try:
                worker.send_job(spec, folder)
                result = await worker.read_build(report)
            except WorkerExitError as error:
                raise LoadError(f"{spec}: {error}", error.detail) from error
            except LoadError:
                self._idle.append(worker)
                raise
            except BaseException:
                worker.detach()
                await clean_up_in_thread(worker.cancel)
                raise
            self._idle.append(worker)
            return result

    def detach(self) -> None:
        """Stop reading messages. Call it on the event loop, before `close`."""
        for worker in self._workers:
            worker.detach()

    def close(self) -> None:
        """End all workers and block until they have ended: not for the event loop."""
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            worker.cancel()
        self._workers.clear()
        self._idle.clear()


class RanksOpener(TraceOpener):
    """Open several ranks as one trace.

    `files`: the traces, by rank; `label`: what the user called them; `spec`: the name that opens them again; `lost`:
    ranks that are known to be missing. A rank that cannot be opened is left out and listed in `Ranks.lost`; at least
    one must open. Each rank uses those `captures` that are of its own.
    """

    takes_captures = True

    def __init__(
        self,
        files: Sequence[RankFile],
        label: str,
        spec: str,
        cache: bool = True,
        lost: Sequence[LostRank] = (),
        left_out: tuple[str, ...] = (),
    ) -> None:
        super().__init__(label, spec, files[0].spec, left_out)
        self.files = list(files)
        self.cached = True
        self._use_cache = cache
        self._lost = list(lost)
        self._cache_entries: list[CacheEntry] = []
        self._pool: WorkerPool | None = None
        self._progress = [Progress(Phase.STARTING, 0, file.size) for file in self.files]
        self._shares = [0.0] * len(self.files)
        self._host_limits: dict[str, asyncio.Semaphore] = {}

    async def _load(self, report: Report) -> Trace:
        raise_descriptor_limit(len(self.files))
        any_remote = any(is_remote(file.spec) for file in self.files)
        max_workers = max(MAX_WORKERS, MAX_WORKERS_PER_HOST if any_remote else 1)
        pool = self._pool = WorkerPool(min(max_workers, len(self.files)))
        tasks = [asyncio.ensure_future(self._open_rank(index, report)) for index in range(len(self.files))]
        succeeded = cancelled = False
        try:
            results = await asyncio.gather(*tasks)
            opened = [result for result in results if not isinstance(result, LostRank)]
            lost = [*self._lost, *(result for result in results if isinstance(result, LostRank))]
            if not opened:
                more = f" (and {len(lost) - 1} more that could not be opened)" if len(lost) > 1 else ""
                raise LoadError(f"{lost[0].reason}{more}", "\n".join(map(str, lost)))
            report(self._sum_progress(Phase.MERGING, sum(len(rank.trace) for rank in opened)))
            trace = await asyncio.to_thread(self._merge_ranks, opened, lost)
            succeeded = True
            return trace
        except asyncio.CancelledError:
            cancelled = True
            raise
        except LoadError:
            raise
        except Exception as error:
            raise LoadError(format_error(error), traceback.format_exc()) from error
        finally:
            if not cancelled:  # gather cancelled them; a second time would interrupt the wait for their workers
                for task in tasks:
                    task.cancel()
            self._pool = None
            pool.detach()
            await clean_up_in_thread(pool.close)
            if not succeeded:
                await asyncio.gather(*tasks, return_exceptions=True)
                await clean_up_in_thread(self.close)

    async def _open_rank(self, index: int, report: Report) -> OpenedRank | LostRank:
        from torchprof_tui.trace.ranks.merge import OpenedRank  # deferred: not needed before the first frame

        file = self.files[index]
        state = OpeningState(file.spec, cache=self._use_cache, identity=file.identity, captures=self.captures)
        try:
            opened = await open_or_build_async(state, partial(self._build_rank, index, report))
        except LoadError as error:
            self._shares[index] = FAILED_SHARE
            report(self._sum_progress(Phase.READING))
            return LostRank(file.rank, file.spec, str(error))
        self.cached = self.cached and opened.cached
        self.cache_was_damaged = self.cache_was_damaged or opened.was_damaged
        self._shares[index] = 1.0
        self._cache_entries.append(state.entry)
        collectives = await asyncio.to_thread(_load_or_read_collectives, state.entry.folder, opened.trace)
        rank = rank_of(opened.trace.rank, file.spec)
        if rank is None:
            rank = file.rank
        return OpenedRank(-1 if rank is None else rank, file.spec, opened.trace, collectives)

    async def _build_rank(self, index: int, report: Report, entry: CacheEntry) -> BuildResult:
        """Have a worker of the pool fill an entry, at most MAX_WORKERS_PER_HOST of one host at a time."""
        assert self._pool is not None
        host = host_of(entry.spec)
        limit = asyncio.Semaphore(MAX_WORKERS_PER_HOST)
        async with limit if host is None else self._host_limits.setdefault(host, limit):
            return await self._pool.decode_trace(entry.spec, entry.folder, partial(self._report_rank, index, report))

    def _report_rank(self, index: int, report: Report, progress: Progress) -> None:
        before = self._progress[index]
        if progress.total is None:
            events = max(before.events, progress.events)
            progress = Progress(progress.phase, max(before.bytes, progress.bytes), before.total, events)
        self._progress[index] = progress
        if progress.phase in (Phase.ARRANGING, Phase.STORING):
            self._shares[index] = 1.0
        elif progress.total:
            self._shares[index] = min(progress.bytes / progress.total, 1.0)
        report(self._sum_progress(Phase.READING))

    def _sum_progress(self, phase: Phase, events: int | None = None) -> RanksProgress:
        ranks = [rank for rank, share in zip(self._progress, self._shares, strict=True) if share != FAILED_SHARE]
        sizes = [rank.total for rank in ranks if rank.total is not None]
        # Ranks of unknown size are assumed to have the mean size of the others.
        total = sum(sizes) * len(ranks) // len(sizes) if sizes else None
        read = sum(rank.bytes for rank in ranks)
        events = sum(rank.events for rank in ranks) if events is None else events
        return RanksProgress(phase, read, total, events, tuple(self._shares))

    def _merge_ranks(self, opened: list[OpenedRank], lost: list[LostRank]) -> Trace:
        """Merge the ranks. Raises TraceError where they are not the ranks of one run."""
        from torchprof_tui.trace.ranks.merge import merge_ranks  # deferred: not needed before the first frame

        numbers = [rank.number for rank in opened]
        file_of_world_size: dict[int, str] = {}
        for rank in opened:
            if rank.number < 0:
                raise TraceError(
                    f"{rank.file} has no rank number, neither in distributedInfo nor in its name: these are "
                    f"not the ranks of one run; open them one by one"
                )
            if numbers.count(rank.number) > 1:
                same = [other.file for other in opened if other.number == rank.number]
                raise TraceError(
                    f"{same[0]} and {same[1]} are both of rank {rank.number}: these are not the ranks of one run"
                )
            if rank.trace.world_size is not None:
                file_of_world_size.setdefault(rank.trace.world_size, rank.file)
        if len(file_of_world_size) > 1:
            (size, file), (other_size, other_file), *_ = file_of_world_size.items()
            raise TraceError(f"ranks of different runs: {file} is of {size} ranks, {other_file} of {other_size}")
        return merge_ranks(opened, self.label, lost)

    def _stop(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def close(self) -> None:
        entries, self._cache_entries = self._cache_entries, []
        for entry in entries:
            entry.close()


def _load_or_read_collectives(folder: Path, trace: Trace) -> Collectives:
    """Load the collectives stored beside the columns; for a trace that was opened alone, read and store them now."""
    # deferred: not needed before the first frame
    from torchprof_tui.trace.ranks.collective_matching import load_collectives, read_collectives, store_collectives

    collectives = load_collectives(folder)
    if collectives is None:
        collectives = read_collectives(trace)
        store_collectives(collectives, folder)
    return collectives


MAX_UNNUMBERED_FILES = 64
"""Remote traces whose names say no rank, at most: each must be fetched whole before its rank is known."""


class RemoteOpener(TraceOpener):
    """Open several names of which some are remote.

    `names`: what the user named; `label`: what they called it together; `spec`: the name that opens it again.
    Each host lists over one connection, by a worker that `start` starts without an event loop, before the screen is
    drawn.
    """

    def __init__(self, names: Sequence[str], label: str, spec: str, cache: bool = True) -> None:
        super().__init__(label, spec, names[0])
        self.names = list(names)
        self._use_cache = cache
        self._listing_worker: WorkerProcess | None = None
        self._release_fd: int | None = None
        self._opener: TraceOpener | None = None

    def _start(self) -> None:
        """Start the worker that asks the hosts. Raises OSError where no process can be started."""
        # The worker holds shared connections until this pipe is closed, by `_release_connections` or our end.
        stdin, self._release_fd = os.pipe()
        try:
            self._listing_worker = WorkerProcess(Task.LIST, json.dumps(self.names), stdin=stdin)
            self._listing_worker.start()
        except BaseException:
            self._listing_worker = None
            self.close()
            raise
        finally:
            os.close(stdin)

    async def _load(self, report: Report) -> Trace:
        succeeded = False
        try:
            lister = self._listing_worker
            assert lister is not None, "start() comes first"
            report(Progress(Phase.CONNECTING))
            try:
                message = await lister.read_result(report)
            finally:
                lister.detach()
            opener = self._opener = self._select_opener([listing_from_json(each) for each in message["listings"]])
            self.path = opener.path
            opener.start()
            trace = await opener.load_trace(report)
            self.cached, self.cache_was_damaged = opener.cached, opener.cache_was_damaged
            succeeded = True
            return trace
        finally:
            worker, self._listing_worker = self._listing_worker, None
            self._release_connections()
            if worker is not None:
                await clean_up_in_thread(worker.cancel)
            if not succeeded:
                await clean_up_in_thread(self.cancel)

    def _select_opener(self, listings: Sequence[Listing]) -> TraceOpener:
        """Select what opens the listed traces. Raises LoadError where there are none, or they are no run."""
        listed = {trace.spec: trace for listing in listings for trace in listing.traces}
        missing = [listing for listing in listings if listing.error]
        if not listed:
            more = f" (and {len(missing) - 1} more that could not be found)" if len(missing) > 1 else ""
            raise LoadError(f"{missing[0].error}{more}", "\n".join(listing.error for listing in missing))
        if len(listed) == 1 and not missing:
            return SingleTraceOpener(next(iter(listed)), cache=self._use_cache)
        if len(self.names) == 1:
            listed = self._select_recording(listed)
        try:
            files = resolve_rank_files(list(listed), self.names[0] if len(self.names) == 1 else "")
        except NotRanksError as error:
            raise LoadError(str(error)) from error
        unnumbered = [file for file in files if file.rank is None]
        if len(unnumbered) > MAX_UNNUMBERED_FILES:
            raise LoadError(
                f"{self.label}: {len(listed):,} traces, and {len(unnumbered):,} of them, such as {unnumbered[0].spec}, "
                f"have no rank number in their names; name the ranks of one run"
            )
        ranks = [RankFile(file.spec, file.rank, listed[file.spec].size, listed[file.spec].identity) for file in files]
        lost = [LostRank(rank_of(None, listing.name), listing.name, listing.error) for listing in missing]
        return RanksOpener(ranks, self.label, self.spec, self._use_cache, lost)

    def _select_recording(self, listed: dict[str, ListedTrace]) -> dict[str, ListedTrace]:
        """Return the ranks of the one run that a folder or pattern names; all traces where no name has a rank.

        Raises LoadError, with the traces to choose from, where there are several recordings.
        """
        recordings = group_recordings(list(listed.values()))
        if sum(trace.rank is not None for trace in listed.values()) < 2:
            return listed  # a file may have a rank that its name does not say
        if len(recordings.all) > 1:
            raise LoadError(f"{self.label}: {recordings.describe()}", listed_files=list(listed.values()))
        self.left_out = recordings.left_out
        return {trace.spec: trace for trace in recordings.all[0].traces}

    def split_into_blocks(self, trace: Trace) -> None:
        if self._opener is not None:
            self._opener.split_into_blocks(trace)

    def _stop(self) -> None:
        worker, self._listing_worker = self._listing_worker, None
        self._release_connections()
        if worker is not None:
            worker.cancel()
        if self._opener is not None:
            self._opener.cancel()

    def close(self) -> None:
        self._release_connections()
        if self._opener is not None:
            self._opener.close()

    def _release_connections(self) -> None:
        if self._release_fd is not None:
            os.close(self._release_fd)
            self._release_fd = None
