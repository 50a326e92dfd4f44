"""Large traces that benchmarks make out of a sample: each entry as often as wanted, the names of lanes once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import orjson
import pytest

from benchmarks import generate, layouts
from tests.helpers.paths import SAMPLES


@pytest.mark.parametrize("layout", ["kineto", *layouts.WRITERS])
def test_a_repeated_trace_names_its_lanes_once(layout: str, tmp_path: Path) -> None:
    source, repeated = tmp_path / "a.json", tmp_path / "b.json"
    source.write_bytes(generate.read_text(SAMPLES / "matmul_add_64_cold_eager.pt.trace.json.gz"))
    if layout != "kineto":
        plain, source = source, tmp_path / "c.json"
        layouts.WRITERS[layout](plain, source)
    before = Counter(each["ph"] for each in orjson.loads(source.read_bytes())["traceEvents"])
    count = generate.repeat_trace(source, repeated, 3 * before.total() - 1)
    after = Counter(each["ph"] for each in orjson.loads(repeated.read_bytes())["traceEvents"])
    assert after.total() == count
    assert after["M"] == before["M"] > 0
    assert after["X"] >= 3 * (before["X"] - 10)  # Kineto's last entries, behind the names, are written once
    assert after["X"] % (before["X"] if layout != "kineto" else 1) == 0
