"""Test what the details panel says while no event is selected."""

from __future__ import annotations

import pytest

from tests.helpers.explorer_app import explorer, settled, text_of
from tests.helpers.pattern_traces import waiting
from tests.helpers.trace_builder import Entry, cpu, step, trace

CPU_ONLY = [entry for k in range(3) for entry in (step(k, k * 100, 90), cpu("aten::mm", k * 100 + 10, 50))]


@pytest.mark.parametrize(("entries", "keys"), [(CPU_ONLY, "cltT"), (waiting(), "clkt")], ids=["CPU", "GPU"])
async def test_the_keys_to_press_first_fit_the_trace(entries: list[Entry], keys: str) -> None:
    async with explorer(trace(*entries), (120, 48)) as (screen, pilot):
        await settled(pilot)
        after = text_of(screen).split("? lists all keys.", 1)[1].splitlines()[1:5]
        assert "".join(line.split()[0] for line in after) == keys
