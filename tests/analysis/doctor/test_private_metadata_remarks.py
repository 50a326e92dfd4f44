"""Test the remarks on environment variables and secrets: of ranks, of large values, and in the app's message."""

from __future__ import annotations

import json
from pathlib import Path

from tests.helpers.merged_ranks import load_merged_ranks
from tests.helpers.rank_traces import late_rank
from tests.helpers.trace_builder import cpu
from torchprof_tui.analysis.doctor.private_metadata_remarks import find_private_metadata
from torchprof_tui.analysis.slicing.slice_writer import write_slice
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.ui.explorer.slice_messages import format_slice_result

VARIABLES = {"HOME": "/root", "TOKEN_OF_MINE": "hidden-value"}


def test_ranks_are_added_up(tmp_path: Path) -> None:
    paths = late_rank(ranks=3).write(tmp_path)
    for path in paths[1:]:
        path.write_text(json.dumps(json.loads(path.read_text()) | {"env": VARIABLES}))
    (remark,) = find_private_metadata(load_merged_ranks(paths))
    assert (remark.kind, remark.count) == ("environment variables", 4)
    assert remark.example == "rank 1: env and 1 more"
    assert "hidden-value" not in str(remark)


def test_large_values_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    large = {"system": {"env": VARIABLES}, "packages": ["x" * 100] * 1000}
    path.write_text(json.dumps({"metadata": large, "traceEvents": [cpu("aten::mm", 1, 5)]}))
    trace = load_trace(str(path), cache=False)
    assert trace.large_keys is not None
    assert [(each.count, each.example) for each in find_private_metadata(trace)] == [(2, "metadata.system.env")]


def test_a_trace_without_such_metadata(tmp_path: Path) -> None:
    assert not list(find_private_metadata(load_merged_ranks(late_rank(ranks=2).write(tmp_path))))


def test_the_app_says_what_a_slice_lacks(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"env": VARIABLES, "traceEvents": [cpu("aten::mm", 1, 5)]}))
    sliced = write_slice(load_trace(str(path), cache=False), 0, 10_000, tmp_path / "b.json")
    assert format_slice_result(sliced).endswith("; left out: env (2 environment variables)")
    assert sliced.left_out == ["env"]
