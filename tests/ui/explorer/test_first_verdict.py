"""Test that a large trace has its verdict before its patterns are checked, and a small one only the whole verdict."""

from __future__ import annotations

import threading

import pytest

from tests.helpers.explorer_app import explorer, two_steps, until
from tests.helpers.golden_files import text_on_screen
from tests.helpers.paths import SAMPLES
from torchprof_tui import app
from torchprof_tui.analysis.patterns.verdict.latest_check import FIRST_VERDICT_NOTE, LatestOnlyChecker, PrecomputedCheck
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.ui.explorer import background_queries

pytestmark = pytest.mark.painted


async def test_the_verdict_comes_first_and_says_that_patterns_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on, precompute = threading.Event(), LatestOnlyChecker.precompute

    def wait_and_precompute(self: LatestOnlyChecker) -> PrecomputedCheck:
        may_go_on.wait(30)
        return precompute(self)

    monkeypatch.setattr(background_queries, "MAX_EVENTS_RANKED_FIRST", 0)
    monkeypatch.setattr(LatestOnlyChecker, "precompute", wait_and_precompute)
    async with explorer(two_steps(), (240, 60)) as (screen, pilot):
        try:
            await until(pilot, lambda: FIRST_VERDICT_NOTE in text_on_screen(screen))
            first = _verdict_line(text_on_screen(screen))
        finally:
            may_go_on.set()
        await until(pilot, lambda: FIRST_VERDICT_NOTE not in text_on_screen(screen))
        assert first.split(" · ")[0] == _verdict_line(text_on_screen(screen)).split(" · ")[0]


async def test_a_small_trace_has_the_whole_verdict_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(LatestOnlyChecker, "decide_first_verdict", lambda self: asked.append(self))
    async with explorer(two_steps(), (240, 60)) as (screen, pilot):
        await until(pilot, lambda: "GPU" in _verdict_line(text_on_screen(screen)))
        assert not asked


async def test_other_screens_are_imported_after_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports beside it hold the GIL, and a large trace would be checked later."""
    done: list[str] = []
    precompute = LatestOnlyChecker.precompute

    def note_and_precompute(self: LatestOnlyChecker) -> PrecomputedCheck:
        result = precompute(self)
        done.append("check")
        return result

    monkeypatch.setattr(LatestOnlyChecker, "precompute", note_and_precompute)
    monkeypatch.setattr(app, "import_screens", lambda: done.append("screens"))
    opening = resolve_specs([str(SAMPLES / "linear_eager.pt.trace.json.gz")]).create_opener(cache=False)
    opening.start()
    async with app.TorchprofApp(opening, cache=False).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "screens" in done)
    assert done == ["check", "screens"]


def _verdict_line(text: str) -> str:
    return text.splitlines()[1].strip()
