"""The opener of several remote traces or patterns: their hosts list them, then one trace or a run is opened."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchprof_tui.trace.loading.cleanup import clean_up_in_thread
from torchprof_tui.trace.loading.errors import LoadError
from torchprof_tui.trace.loading.open_ranks import RanksOpener
from torchprof_tui.trace.loading.open_trace import SingleTraceOpener
from torchprof_tui.trace.loading.opener import TraceOpener
from torchprof_tui.trace.loading.progress import Phase, Progress, Report
from torchprof_tui.trace.loading.worker_process import Task, WorkerProcess
from torchprof_tui.trace.model.ranks import LostRank
from torchprof_tui.trace.sources.listing import Listing, listing_from_json
from torchprof_tui.trace.specs.address import ListedTrace
from torchprof_tui.trace.specs.rank_files import NotRanksError, RankFile, rank_of, resolve_rank_files
from torchprof_tui.trace.specs.runs_by_name import group_recordings

if TYPE_CHECKING:
    from torchprof_tui.trace.model.trace import Trace

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
        """Load the trace, or all ranks as one."""
        succeeded = False
        try:
            listings = await self._read_listings(report)
            opener = self._opener = self._select_opener(listings)
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

    async def _read_listings(self, report: Report) -> list[Listing]:
        worker = self._listing_worker
        assert worker is not None, "start() comes first"
        report(Progress(Phase.CONNECTING))
        try:
            message = await worker.read_result(report)
        finally:
            worker.detach()
        return [listing_from_json(listing) for listing in message["listings"]]

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
