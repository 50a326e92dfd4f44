"""Tests of expanding folders, patterns and names to ranks; files of different runs are never merged."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.helpers.rank_traces import late_rank
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.trace.specs.rank_files import NotRanksError, expand_spec, rank_of, resolve_rank_files


def write_trace(path: Path, **header: object) -> str:
    path.write_text(json.dumps({**header, "traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1}]}))
    return str(path)


def test_folder_lists_only_traces(tmp_path: Path) -> None:
    for number, path in enumerate(late_rank(3).write(tmp_path, packed=True)):
        assert path.name == f"rank{number}.json.gz"
    (tmp_path / "manifest.rank0.json").write_text('{"kept": [], "rank": 0}')
    (tmp_path / "table.rank0.txt").write_text("a table")
    (tmp_path / "key_averages.json").write_text('[{"name": "aten::mm"}]')
    (tmp_path / ".hidden.json").write_text('{"traceEvents": []}')
    (tmp_path / "below.json").mkdir()
    resolved = resolve_specs([str(tmp_path)])
    assert [(Path(file.spec).name, file.rank) for file in resolved.rank_files] == [
        (f"rank{k}.json.gz", k) for k in range(3)
    ]
    assert (resolved.label, resolved.spec, resolved.path) == (str(tmp_path), str(tmp_path), resolved.rank_files[0].spec)


def test_folder_with_one_trace(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "only.json")
    resolved = resolve_specs([str(tmp_path)])
    assert (resolved.path, resolved.label, resolved.rank_files) == (path, path, ())


def test_folder_without_a_trace(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"name": "x"}')
    with pytest.raises(TraceError, match="a folder, with no"):
        resolve_specs([str(tmp_path)])


def test_pattern_and_several_names_are_equivalent(tmp_path: Path) -> None:
    paths = [str(path) for path in late_rank(3).write(tmp_path)]
    by_pattern = resolve_specs([str(tmp_path / "rank[0-9].json")])
    by_name = resolve_specs([paths[2], paths[0], paths[1]])
    assert by_pattern.rank_files == by_name.rank_files
    assert [file.rank for file in by_name.rank_files] == [0, 1, 2]
    assert by_name.spec == ""  # no single name opens it again
    assert by_name.label == str(tmp_path)


def test_file_name_with_pattern_characters(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "a[0].json")
    write_trace(tmp_path / "a0.json")
    assert resolve_specs([path]).path == path
    assert expand_spec(str(tmp_path / "none*.json")) == [str(tmp_path / "none*.json")]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank3.pt.trace.json.gz", 3),
        ("matmul.rank12.pt.trace.json.gz", 12),
        ("worker7_step_12.1694128201553.pt.trace.json.gz", 7),
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 34),
        ("trace_r2.json", 2),
        ("RANK_05.json", 5),
        ("host_4242.1690000.pt.trace.json", None),
        ("worker.json", None),
        ("bar3.json", None),
        ("frank3.json", None),
    ],
)
def test_rank_in_a_name(name: str, rank: int | None) -> None:
    assert rank_of(None, f"runs/rank9/{name}") == rank
    assert rank_of(1, name) == 1  # the recorded rank takes precedence


def test_recorded_rank_overrides_the_name(tmp_path: Path) -> None:
    first = write_trace(tmp_path / "rank7.json", distributedInfo={"backend": "nccl", "rank": 1, "world_size": 2})
    second = write_trace(
        tmp_path / "b.json", distributedInfo={"rank": "0", "world_size": 2, "pg_config": [{"ranks": [5]}]}
    )
    assert [(file.spec, file.rank) for file in resolve_rank_files([first, second])] == [(second, 0), (first, 1)]


def test_files_of_different_runs_are_refused(tmp_path: Path) -> None:
    one = write_trace(tmp_path / "a.json")
    two = write_trace(tmp_path / "b.json", distributedInfo={"rank": 1, "world_size": 2})
    with pytest.raises(NotRanksError, match=r"a\.json has no rank number"):
        resolve_rank_files([two, one])
    resolved = resolve_specs([str(tmp_path)])  # in a folder, what says no rank is left out
    assert (resolved.path, resolved.left_out) == (two, ("a.json: says no rank, and the others do",))
    run = [write_trace(tmp_path / f"worker{k}.170000000000{k}.json") for k in range(2)]
    with pytest.raises(TraceError) as caught:
        resolve_specs([str(tmp_path)])
    pattern = f"{tmp_path}/worker*.*.json"
    assert f"'{pattern}' (2 ranks)" in str(caught.value)
    assert [file.spec for file in resolve_specs([pattern]).rank_files] == [str(path) for path in run]
    twice = write_trace(tmp_path / "c.json", distributedInfo={"rank": 1, "world_size": 2})
    with pytest.raises(NotRanksError, match=r"b\.json and c\.json are both of rank 1"):
        resolve_rank_files([two, twice])
    other = write_trace(tmp_path / "d.json", distributedInfo={"rank": 0, "world_size": 8})
    with pytest.raises(NotRanksError, match=r"different runs: b\.json is of 2 ranks, d\.json of 8"):
        resolve_rank_files([two, other])
    with pytest.raises(TraceError, match="no such file"):
        resolve_specs([two, str(tmp_path / "gone.json")])


def test_stdin_is_one_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="stdin is one trace"):
        resolve_specs(["-", write_trace(tmp_path / "rank1.json")])


def test_damaged_head_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": []}')[:8] + b"broken")
    assert resolve_specs([str(path)]).path == str(path)  # the decoder reports the damage
    with pytest.raises(TraceError, match="a folder, with no"):
        resolve_specs([str(tmp_path)])
