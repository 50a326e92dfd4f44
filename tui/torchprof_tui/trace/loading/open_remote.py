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
from torchprof_tui.trace.loading.open_trace import Opening
from torchprof_tui.trace.loading.progress import Progress, Report
from torchprof_tui.trace.loading.worker_process import LoaderProcess
from torchprof_tui.trace.model.ranks import LostRank
from torchprof_tui.trace.sources.listing import Looked
from torchprof_tui.trace.specs.rank_files import NotRanksError, RankFile, rank_of, ranks

if TYPE_CHECKING:
    from torchprof_tui.trace.loading.open_ranks import RanksOpening
    from torchprof_tui.trace.model.trace import Trace

NAMELESS = 64
"""Traces elsewhere whose names say no rank, at most: each must come here whole before it can say so itself."""


class ElsewhereOpening:
    """`names`: what the user named, some of it elsewhere; `label`: what they called it together; `spec`: what opens
    it again. `ask`: ssh may ask on the terminal until `wait_until_connected` returns.
    """

    def __init__(self, names: Sequence[str], label: str, spec: str, cache: bool = True, ask: bool = False) -> None:
        self.names = list(names)
        self.label = label
        self.spec = spec
        self._cache = cache
        self._ask = ask
        self._look: LoaderProcess | None = None
        self._let_go: int | None = None
        self._inner: Opening | RanksOpening | None = None

    @property
    def path(self) -> str:
        """The trace, or the first of several ranks'."""
        return self.names[0] if self._inner is None else self._inner.path

    @property
    def cached(self) -> bool:
        """Whether nothing had to be decoded; known when `trace` has ended."""
        return self._inner is not None and self._inner.cached

    def start(self) -> None:
        """Ask the hosts. Raises OSError where no process can be started."""
        # It lives until this pipe is closed, by us or by our end: connections that ours go through are its own.
        stdin, self._let_go = os.pipe()
        try:
            self._look = LoaderProcess(json.dumps(self.names), Path(), stdin, self._ask, look=True)
            self._look.start()
        except BaseException:
            self._look = None
            self.close()
            raise
        finally:
            os.close(stdin)

    def wait_until_connected(self) -> None:
        """Block until nothing more is asked on the terminal, or Ctrl-C."""
        if self._look is not None:
            self._look.wait_for_word()

    async def trace(self, report: Report) -> Trace:
        """The trace, or all ranks as one. Raises LoadError; where it fails or is cancelled, nothing is left behind."""
        import asyncio

        gone_wrong = True
        try:
            looked = await self._looked(report)
            self._inner = self._meant(looked)
            self._inner.start()
            trace = await self._inner.trace(report)
            gone_wrong = False
            return trace
        finally:
            look, self._look = self._look, None
            self._release()
            if look is not None:
                await asyncio.to_thread(look.cancel)
            if gone_wrong:
                await asyncio.to_thread(self.cancel)

    async def _looked(self, report: Report) -> list[Looked]:
        assert self._look is not None, "start() comes first"
        report(Progress("connecting"))
        async for progress in self._look.progress():
            report(progress)
        return self._look.looked

    def _meant(self, looked: Sequence[Looked]) -> Opening | RanksOpening:
        """What to open. Raises LoadError where nothing is there, or what is there is no run."""
        listed = {each.spec: each for one in looked for each in one.found}
        missing = [one for one in looked if one.why]
        if not listed:
            more = f" (and {len(missing) - 1} more that could not be found)" if len(missing) > 1 else ""
            raise LoadError(f"{missing[0].why}{more}", "\n".join(one.why for one in missing))
        if len(listed) == 1 and not missing:
            return Opening(next(iter(listed)), cache=self._cache)
        try:
            files = ranks(list(listed), self.names[0] if len(self.names) == 1 else "")
        except NotRanksError as error:
            raise LoadError(str(error)) from error
        nameless = [file for file in files if file.rank is None]
        if len(nameless) > NAMELESS:
            raise LoadError(
                f"{self.label}: {len(listed):,} traces, and {len(nameless):,} of them, such as {nameless[0].spec}, do "
                f"not say in their names which rank they are; name the ranks of one run"
            )
        told = [RankFile(file.spec, file.rank, listed[file.spec].size, listed[file.spec].identity) for file in files]
        lost = [LostRank(rank_of(None, one.name), one.name, one.why) for one in missing]
        from torchprof_tui.trace.loading.open_ranks import RanksOpening

        return RanksOpening(told, self.label, self.spec, self._cache, lost)

    def cancel(self) -> None:
        """Stop, and let go of all. Waits for the processes to be gone: not for the event loop."""
        look, self._look = self._look, None
        self._release()
        if look is not None:
            look.cancel()
        if self._inner is not None:
            self._inner.cancel()

    def close(self) -> None:
        """The trace is no longer looked at."""
        self._release()
        if self._inner is not None:
            self._inner.close()

    def _release(self) -> None:
        if self._let_go is not None:
            os.close(self._let_go)
            self._let_go = None
