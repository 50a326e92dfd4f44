"""Several traces elsewhere, or patterns of them, on their way into the program: first their hosts say what there is,
each over one connection, then it is opened as one trace or as the ranks of a run.

The same to its users as `Opening`. Begun before the screen is drawn, and without an event loop: ssh may ask then.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchprof_tui.trace.loading.errors import LoadError
from torchprof_tui.trace.loading.open_trace import SingleTraceOpener
from torchprof_tui.trace.loading.progress import Progress, Report
from torchprof_tui.trace.loading.worker_process import LoaderProcess
from torchprof_tui.trace.model.ranks import LostRank
from torchprof_tui.trace.sources.listing import Listing
from torchprof_tui.trace.specs.rank_files import NotRanksError, RankFile, rank_of, resolve_rank_files

if TYPE_CHECKING:
    from torchprof_tui.trace.loading.open_ranks import RanksOpener
    from torchprof_tui.trace.model.trace import Trace

MAX_UNNUMBERED_FILES = 64
"""Traces elsewhere whose names say no rank, at most: each must come here whole before it can say so itself."""


class RemoteOpener:
    """`names`: what the user named, some of it elsewhere; `label`: what they called it together; `spec`: what opens
    it again. `ask`: ssh may ask on the terminal until `wait_until_connected` returns.
    """

    def __init__(self, names: Sequence[str], label: str, spec: str, cache: bool = True, ask: bool = False) -> None:
        self.names = list(names)
        self.label = label
        self.spec = spec
        self._cache = cache
        self._ask = ask
        self._listing_process: LoaderProcess | None = None
        self._release_fd: int | None = None
        self._opener: SingleTraceOpener | RanksOpener | None = None

    @property
    def path(self) -> str:
        """The trace, or the first of several ranks'."""
        return self.names[0] if self._opener is None else self._opener.path

    @property
    def cached(self) -> bool:
        """Whether nothing had to be decoded; known when `trace` has ended."""
        return self._opener is not None and self._opener.cached

    def start(self) -> None:
        """Ask the hosts. Raises OSError where no process can be started."""
        # It lives until this pipe is closed, by us or by our end: connections that ours go through are its own.
        stdin, self._release_fd = os.pipe()
        try:
            self._listing_process = LoaderProcess(json.dumps(self.names), Path(), stdin, self._ask, list_names=True)
            self._listing_process.start()
        except BaseException:
            self._listing_process = None
            self.close()
            raise
        finally:
            os.close(stdin)

    def wait_until_connected(self) -> None:
        """Block until nothing more is asked on the terminal, or Ctrl-C."""
        if self._listing_process is not None:
            self._listing_process.wait_for_message()

    async def load_trace(self, report: Report) -> Trace:
        """The trace, or all ranks as one. Raises LoadError; where it fails or is cancelled, nothing is left behind."""
        import asyncio

        gone_wrong = True
        try:
            looked = await self._read_listings(report)
            self._opener = self._select_opener(looked)
            self._opener.start()
            trace = await self._opener.load_trace(report)
            gone_wrong = False
            return trace
        finally:
            look, self._listing_process = self._listing_process, None
            self._release_connections()
            if look is not None:
                await asyncio.to_thread(look.cancel)
            if gone_wrong:
                await asyncio.to_thread(self.cancel)

    async def _read_listings(self, report: Report) -> list[Listing]:
        assert self._listing_process is not None, "start() comes first"
        report(Progress("connecting"))
        async for progress in self._listing_process.read_progress():
            report(progress)
        return self._listing_process.listings

    def _select_opener(self, looked: Sequence[Listing]) -> SingleTraceOpener | RanksOpener:
        """What to open. Raises LoadError where nothing is there, or what is there is no run."""
        listed = {each.spec: each for one in looked for each in one.traces}
        missing = [one for one in looked if one.error]
        if not listed:
            more = f" (and {len(missing) - 1} more that could not be found)" if len(missing) > 1 else ""
            raise LoadError(f"{missing[0].error}{more}", "\n".join(one.error for one in missing))
        if len(listed) == 1 and not missing:
            return SingleTraceOpener(next(iter(listed)), cache=self._cache)
        try:
            files = resolve_rank_files(list(listed), self.names[0] if len(self.names) == 1 else "")
        except NotRanksError as error:
            raise LoadError(str(error)) from error
        nameless = [file for file in files if file.rank is None]
        if len(nameless) > MAX_UNNUMBERED_FILES:
            raise LoadError(
                f"{self.label}: {len(listed):,} traces, and {len(nameless):,} of them, such as {nameless[0].spec}, do "
                f"not say in their names which rank they are; name the ranks of one run"
            )
        told = [RankFile(file.spec, file.rank, listed[file.spec].size, listed[file.spec].identity) for file in files]
        lost = [LostRank(rank_of(None, one.name), one.name, one.error) for one in missing]
        from torchprof_tui.trace.loading.open_ranks import RanksOpener

        return RanksOpener(told, self.label, self.spec, self._cache, lost)

    def cancel(self) -> None:
        """Stop, and let go of all. Waits for the processes to be gone: not for the event loop."""
        look, self._listing_process = self._listing_process, None
        self._release_connections()
        if look is not None:
            look.cancel()
        if self._opener is not None:
            self._opener.cancel()

    def close(self) -> None:
        """The trace is no longer looked at."""
        self._release_connections()
        if self._opener is not None:
            self._opener.close()

    def _release_connections(self) -> None:
        if self._release_fd is not None:
            os.close(self._release_fd)
            self._release_fd = None
