"""Recording of a block of code in this process: its trace, and what is refused."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

import torchprof_tui as tt
from tests.helpers.later_imports import import_later

torch = import_later("torch")
pytestmark = pytest.mark.torch


def test_a_block_is_recorded(tmp_path: Path) -> None:
    with tt.record(tmp_path / "new" / "cell.json.gz", record_shapes=True) as rec:
        with pytest.raises(tt.TraceError, match="once the with block has ended"):
            _ = rec.trace
        with pytest.raises(tt.TraceError, match="on already"), tt.record(tmp_path / "b.json"):
            pass
        for _ in range(3):
            rec.step()
            torch.ones(8, 8) @ torch.ones(8, 8)
    assert [each.number for each in rec.trace.steps] == [0, 1, 2]
    assert next(row.calls for row in rec.trace.table() if row.name == "aten::mm") == 3
    assert "aten::mm" in rec._repr_html_()
    failed = tt.record(tmp_path / "error.json")
    with contextlib.suppress(ZeroDivisionError), failed:
        torch.ones(4).sin()
        _ = 1 / 0
    assert "aten::sin" in [row.name for row in failed.trace.table()]
    with pytest.raises(tt.TraceError, match=r"\.json or \.json\.gz"):
        tt.record(tmp_path / "cell.txt")
