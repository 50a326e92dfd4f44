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

from tui.trace.cache import Place, find, find_identity
from tui.trace.child import LoadError
from tui.trace.crew import Crew
from tui.trace.loader import Built, Progress, Report, describe, map_place, open_place
from tui.trace.rank_files import RankFile, rank_of

if TYPE_CHECKING:
    from tui.trace.collectives import Collectives
    from tui.trace.merge import Given
    from tui.trace.trace import Trace

WORKERS = os.cpu_count() or 1
"""Processes that decode at the same time."""


class RanksOpening:
    """`files`: the traces, by rank; `label`: what the user called them; `spec`: what opens them again.

    `cached`: whether nothing had to be decoded; known when `trace` has ended.
    """

    def __init__(self, files: Sequence[RankFile], label: str, spec: str, cache: bool = True) -> None:
        self.files = list(files)
        self.label = label
        self.spec = spec
        self.cached = True
        self._cache = cache
        self._places: list[Place] = []
        self._crew: Crew | None = None
        self._told: dict[int, Progress] = {}

    @property
    def path(self) -> str:
        """The first rank's file."""
        return self.files[0].spec

    def start(self) -> None:
        """Nothing is begun before the event loop runs: the processes are watched from there."""

    def wait_until_connected(self) -> None:
        """Nothing is asked on the terminal: several files at once could not be told apart."""

    async def trace(self, report: Report) -> Trace:
        """All ranks as one trace. Raises LoadError; where it fails or is cancelled, nothing is left behind."""
        self._crew = Crew(min(WORKERS, len(self.files)))
        tasks = [asyncio.ensure_future(self._rank(k, report)) for k in range(len(self.files))]
        gone_wrong = True
        try:
            given = await asyncio.gather(*tasks)
            report(Progress("merging", events=sum(len(each.trace) for each in given)))
            trace = await asyncio.to_thread(self._merged, given)
            gone_wrong = False
            return trace
        except LoadError:
            raise
        except Exception as error:
            raise LoadError(describe(error), traceback.format_exc()) from error
        finally:
            for task in tasks:
                task.cancel()
            crew, self._crew = self._crew, None
            if crew is not None:
                crew.detach()
                await asyncio.to_thread(crew.close)
            if gone_wrong:
                await asyncio.gather(*tasks, return_exceptions=True)
                await asyncio.to_thread(self.close)

    async def _rank(self, number: int, report: Report) -> Given:
        from tui.trace.merge import Given

        spec = self.files[number].spec
        place, trace = await self._mapped(number, spec, report)
        self._places.append(place)
        rank = rank_of(trace.rank, spec)
        collectives = await asyncio.to_thread(_collectives, place, trace)
        return Given(self.files[number].rank if rank is None else rank, spec, trace, collectives)

    async def _mapped(self, number: int, spec: str, report: Report) -> tuple[Place, Trace]:
        assert self._crew is not None
        place = find(spec, self._cache)
        try:
            if place.ready:
                trace = await asyncio.to_thread(open_place, place, spec)
                if trace is not None:
                    return place, trace
                place = find(spec, self._cache)
            self.cached = False
            built = await self._crew.build(spec, place.folder, partial(self._heard, number, report))
            if built.kept:
                place.discard()
                return await self._known(number, spec, built, report)
            place.publish(built.identity)
            return place, await asyncio.to_thread(map_place, place, spec)
        except BaseException:
            place.close()
            raise

    async def _known(self, number: int, spec: str, built: Built, report: Report) -> tuple[Place, Trace]:
        """What the cache has of something elsewhere; read again where that is of no use."""
        assert self._crew is not None
        place = find_identity(spec, built.identity or "")
        trace = None if place is None else await asyncio.to_thread(open_place, place, spec)
        if place is not None and trace is not None:
            return place, trace
        place = find(spec, cache=False)
        await self._crew.build(spec, place.folder, partial(self._heard, number, report))
        return place, await asyncio.to_thread(map_place, place, spec)

    def _heard(self, number: int, report: Report, progress: Progress) -> None:
        """One rank's progress, as part of all."""
        before = self._told.get(number)
        if before is not None and progress.total is None:
            progress = Progress(progress.phase, before.total or 0, before.total, max(before.events, progress.events))
        self._told[number] = progress
        told = list(self._told.values())
        known = [each.total for each in told if each.total is not None]
        # What has not begun is about as large as what has.
        total = sum(known) * len(self.files) // len(known) if known else None
        report(Progress("reading", sum(each.bytes for each in told), total, sum(each.events for each in told)))

    def _merged(self, given: list[Given]) -> Trace:
        from tui.trace.merge import merge
        from tui.trace.source import TraceError

        numbers = [each.number for each in given]
        for each in given:
            if numbers.count(each.number) > 1:
                same = [other.file for other in given if other.number == each.number]
                raise TraceError(f"{same[0]} and {same[1]} are both of rank {each.number}: not ranks of one run")
        return merge(given, self.label)

    def cancel(self) -> None:
        """Stop decoding and let go of all. Waits for the processes to be gone."""
        if self._crew is not None:
            self._crew.close()
            self._crew = None
        self.close()

    def close(self) -> None:
        """The trace is no longer looked at."""
        places, self._places = self._places, []
        for place in places:
            place.close()


def _collectives(place: Place, trace: Trace) -> Collectives:
    """Kept beside the columns by whoever decoded them for this; of a trace that was opened alone, read now."""
    from tui.trace import collectives

    found = collectives.kept(place.folder)
    if found is None:
        found = collectives.read(trace)
        collectives.keep(found, place.folder)
    return found
