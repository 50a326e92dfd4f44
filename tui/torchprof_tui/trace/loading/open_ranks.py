"""Several ranks' traces on their way into the program, each mapped where the cache has it, then put together.

The same to its users as `Opening`, which opens one.
"""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from torchprof_tui.trace.core.errors import format_error
from torchprof_tui.trace.loading.errors import LoadError
from torchprof_tui.trace.loading.load import BuildResult, map_cache_entry, try_map_cache_entry
from torchprof_tui.trace.loading.progress import FAILED_SHARE, Progress, RanksProgress, Report
from torchprof_tui.trace.loading.worker_pool import WorkerPool
from torchprof_tui.trace.model.ranks import LostRank
from torchprof_tui.trace.specs.address import host_of, is_remote
from torchprof_tui.trace.specs.rank_files import RankFile, rank_of
from torchprof_tui.trace.storage.disk_cache import CacheEntry, find_by_identity, find_or_create_entry

if TYPE_CHECKING:
    from torchprof_tui.trace.model.trace import Trace
    from torchprof_tui.trace.ranks.collective_records import Collectives
    from torchprof_tui.trace.ranks.merge import OpenedRank

MAX_WORKERS = os.cpu_count() or 1
"""Processes that decode at the same time."""


MAX_WORKERS_PER_HOST = 4
"""Traces that come from one host at the same time: a server takes ten sessions over one connection, and refuses some
of ten that begin at once (sshd's MaxSessions and MaxStartups)."""


class RanksOpener:
    """`files`: the traces, by rank; `label`: what the user called them; `spec`: what opens them again; `lost`: ranks
    that are known to be missing.

    A rank that cannot be opened is missing from the trace and told in `Ranks.lost`; one at least must be there.
    `cached`: whether nothing had to be decoded; known when `trace` has ended.
    """

    def __init__(
        self, files: Sequence[RankFile], label: str, spec: str, cache: bool = True, lost: Sequence[LostRank] = ()
    ) -> None:
        self.files = list(files)
        self.label = label
        self.spec = spec
        self.cached = True
        self._cache = cache
        self._lost = list(lost)
        self._cache_entries: list[CacheEntry] = []
        self._pool: WorkerPool | None = None
        self._progress = [Progress("starting", 0, file.size) for file in self.files]
        self._shares = [0.0] * len(self.files)
        self._host_limits: dict[str, asyncio.Semaphore] = {}

    @property
    def path(self) -> str:
        """The first rank's file."""
        return self.files[0].spec

    def start(self) -> None:
        """Nothing is begun before the event loop runs: the processes are watched from there."""

    def wait_until_connected(self) -> None:
        """Nothing is asked on the terminal: several files at once could not be told apart."""

    async def load_trace(self, report: Report) -> Trace:
        """All ranks as one trace. Raises LoadError; where it fails or is cancelled, nothing is left behind."""
        far = any(is_remote(file.spec) for file in self.files)
        self._pool = WorkerPool(min(max(MAX_WORKERS, MAX_WORKERS_PER_HOST if far else 1), len(self.files)))
        tasks = [asyncio.ensure_future(self._open_rank(k, report)) for k in range(len(self.files))]
        gone_wrong = True
        try:
            opened = await asyncio.gather(*tasks)
            given = [each for each in opened if not isinstance(each, LostRank)]
            lost = [*self._lost, *(each for each in opened if isinstance(each, LostRank))]
            if not given:
                raise _create_no_rank_error(lost)
            report(self._sum_progress("merging", sum(len(each.trace) for each in given)))
            trace = await asyncio.to_thread(self._merge_ranks, given, lost)
            gone_wrong = False
            return trace
        except LoadError:
            raise
        except Exception as error:
            raise LoadError(format_error(error), traceback.format_exc()) from error
        finally:
            for task in tasks:
                task.cancel()
            crew, self._pool = self._pool, None
            if crew is not None:
                crew.detach()
                await asyncio.to_thread(crew.close)
            if gone_wrong:
                await asyncio.gather(*tasks, return_exceptions=True)
                await asyncio.to_thread(self.close)

    async def _open_rank(self, number: int, report: Report) -> OpenedRank | LostRank:
        from torchprof_tui.trace.ranks.merge import OpenedRank

        file = self.files[number]
        try:
            place, trace = await self._map_or_decode(number, file, report)
        except LoadError as error:
            self._shares[number] = FAILED_SHARE
            report(self._sum_progress("reading"))
            return LostRank(file.rank, file.spec, str(error))
        self._shares[number] = 1.0
        self._cache_entries.append(place)
        rank = rank_of(trace.rank, file.spec)
        collectives = await asyncio.to_thread(_load_or_read_collectives, place, trace)
        if rank is None:
            rank = file.rank
        return OpenedRank(-1 if rank is None else rank, file.spec, trace, collectives)

    async def _map_or_decode(self, number: int, file: RankFile, report: Report) -> tuple[CacheEntry, Trace]:
        known = await self._map_by_identity(file.spec, file.identity) if self._cache else None
        if known is not None:
            return known
        place = find_or_create_entry(file.spec, self._cache)
        try:
            if place.ready:
                trace = await asyncio.to_thread(try_map_cache_entry, place, file.spec)
                if trace is not None:
                    return place, trace
                place = find_or_create_entry(file.spec, self._cache)
            built = await self._decode_rank(number, file.spec, place, report)
            if built.kept:
                place.discard()
                known = await self._map_by_identity(file.spec, built.identity)
                if known is not None:
                    return known
                place = find_or_create_entry(file.spec, cache=False)  # what is kept is of no use
                built = await self._decode_rank(number, file.spec, place, report)
            self.cached = False
            place.publish(built.identity)
            return place, await asyncio.to_thread(map_cache_entry, place, file.spec)
        except BaseException:
            place.close()
            raise

    async def _decode_rank(self, number: int, spec: str, place: CacheEntry, report: Report) -> BuildResult:
        """One of the processes decodes it, when one is free, and its host sends few others."""
        assert self._pool is not None
        heard = partial(self._report_rank, number, report)
        host = host_of(spec)
        if host is None:
            return await self._pool.decode_trace(spec, place.folder, heard)
        async with self._host_limits.setdefault(host, asyncio.Semaphore(MAX_WORKERS_PER_HOST)):
            return await self._pool.decode_trace(spec, place.folder, heard)

    async def _map_by_identity(self, spec: str, identity: str | None) -> tuple[CacheEntry, Trace] | None:
        """What the cache has of something elsewhere, if that is of use."""
        place = None if identity is None else find_by_identity(spec, identity)
        trace = None if place is None else await asyncio.to_thread(try_map_cache_entry, place, spec)
        return None if place is None or trace is None else (place, trace)

    def _report_rank(self, number: int, report: Report, progress: Progress) -> None:
        """One rank's progress, as part of all."""
        before = self._progress[number]
        if progress.total is None:
            events = max(before.events, progress.events)
            progress = Progress(progress.phase, max(before.bytes, progress.bytes), before.total, events)
        self._progress[number] = progress
        if progress.phase in ("arranging", "storing"):
            self._shares[number] = 1.0
        elif progress.total:
            self._shares[number] = min(progress.bytes / progress.total, 1.0)
        report(self._sum_progress("reading"))

    def _sum_progress(self, phase: str, events: int | None = None) -> RanksProgress:
        came = [each for each, share in zip(self._progress, self._shares, strict=True) if share != FAILED_SHARE]
        known = [each.total for each in came if each.total is not None]
        # What has not begun is about as large as what has.
        total = sum(known) * len(came) // len(known) if known else None
        read = sum(each.bytes for each in came)
        events = sum(each.events for each in came) if events is None else events
        return RanksProgress(phase, read, total, events, tuple(self._shares))

    def _merge_ranks(self, given: list[OpenedRank], lost: list[LostRank]) -> Trace:
        from torchprof_tui.trace.core.errors import TraceError
        from torchprof_tui.trace.ranks.merge import merge_ranks

        numbers = [each.number for each in given]
        worlds: dict[int, str] = {}
        for each in given:
            if each.number < 0:
                raise TraceError(
                    f"{each.file} does not say which rank it is, neither in distributedInfo nor in its name: "
                    f"not ranks of one run; open them one by one"
                )
            if numbers.count(each.number) > 1:
                same = [other.file for other in given if other.number == each.number]
                raise TraceError(f"{same[0]} and {same[1]} are both of rank {each.number}: not ranks of one run")
            if each.trace.world_size is not None:
                worlds.setdefault(each.trace.world_size, each.file)
        if len(worlds) > 1:
            (one, first), (other, second), *_ = worlds.items()
            raise TraceError(f"ranks of different runs: {first} is of {one} ranks, {second} of {other}")
        return merge_ranks(given, self.label, lost)

    def cancel(self) -> None:
        """Stop decoding and let go of all. Waits for the processes to be gone."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self.close()

    def close(self) -> None:
        """The trace is no longer looked at."""
        places, self._cache_entries = self._cache_entries, []
        for place in places:
            place.close()


def _create_no_rank_error(lost: list[LostRank]) -> LoadError:
    """Where no rank could be opened: the first one's line, and how many others there are."""
    more = f" (and {len(lost) - 1} more that could not be opened)" if len(lost) > 1 else ""
    return LoadError(f"{lost[0].reason}{more}", "\n".join(str(each) for each in lost))


def _load_or_read_collectives(place: CacheEntry, trace: Trace) -> Collectives:
    """Kept beside the columns by whoever decoded them for this; of a trace that was opened alone, read now."""
    from torchprof_tui.trace.ranks import collective_records

    found = collective_records.load_collectives(place.folder)
    if found is None:
        found = collective_records.read_collectives(trace)
        collective_records.store_collectives(found, place.folder)
    return found
