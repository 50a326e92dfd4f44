"""Read what a run saved, from manifests as the harness writes them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.helpers.json_schemas import check_answer
from torchprof_tui.answers.record import as_fields
from torchprof_tui.answers.recording import build_recording
from torchprof_tui.runs.run_result import read_result


def manifest(folder: Path, name: str = "manifest.json", **facts: object) -> None:
    (folder / name).write_text(json.dumps(facts))


def test_traces_and_tables_with_their_folder(tmp_path: Path) -> None:
    kept = [{"trace": "a.json.gz", "table": "t.txt"}, {"trace": "a.cycle2.json.gz", "table": None}]
    manifest(tmp_path, kept=kept, ended="stopped", rank=None, memory_snapshot="memory_snapshot.pickle")
    result = read_result(str(tmp_path), 0, 1.23456, ("mlp",))
    assert as_fields(build_recording(result)) == {
        "schema": "torchprof-tui/run/1",
        "traces": [str(tmp_path / "a.json.gz"), str(tmp_path / "a.cycle2.json.gz")],
        "table": str(tmp_path / "t.txt"),
        "tables": [str(tmp_path / "t.txt")],
        "memory_snapshots": [str(tmp_path / "memory_snapshot.pickle")],
        "exit_status": 0,
        "seconds": 1.235,
        "ended": "stopped",
        "folder": str(tmp_path),
        "command": ["mlp"],
    }
    failed = as_fields(build_recording(result, None, "not compared: no trace was recorded"))
    check_answer(failed, "run", "Recording")
    assert (failed["diff"], failed["cannot_tell"]) == (None, "not compared: no trace was recorded")


def test_ranks_in_their_order(tmp_path: Path) -> None:
    for rank in (10, 2):
        manifest(tmp_path, f"manifest.rank{rank}.json", rank=rank, kept=[{"trace": f"r{rank}"}], ended="SIGTERM")
    manifest(tmp_path, "manifest.json", ranks=[], kept=[{"trace": "summary"}])
    result = read_result(str(tmp_path), -15, 1, ())
    assert result.traces == (str(tmp_path / "r2"), str(tmp_path / "r10"))
    assert result.traces_to_open == result.traces
    assert result.exit_status == 143
    assert result.end_reason == "SIGTERM"


def test_what_is_opened_is_the_first_of_each_rank(tmp_path: Path) -> None:
    for rank in range(2):
        kept = [{"trace": f"a.rank{rank}"}, {"trace": f"a.rank{rank}.cycle2"}]
        manifest(tmp_path, f"manifest.rank{rank}.json", rank=rank, kept=kept if rank != 1 else kept[:1])
    result = read_result(str(tmp_path), 0, 1, ())
    assert len(result.traces) == 3
    assert result.traces_to_open == (str(tmp_path / "a.rank0"), str(tmp_path / "a.rank1"))
    manifest(tmp_path, "manifest.rank2.json", rank=2, kept=[])  # it died, and loses nobody's trace
    assert read_result(str(tmp_path), 0, 1, ()).traces_to_open == result.traces_to_open


def test_of_traces_of_its_own_the_first_is_opened(tmp_path: Path) -> None:
    for name in ("one.json", "two.json"):
        (tmp_path / name).touch()
    own = [str(tmp_path / "one.json"), str(tmp_path / "two.json")]
    manifest(tmp_path, kept=[], script_traces=own, ended="finished")
    assert read_result(str(tmp_path), 0, 1, ()).traces_to_open == (own[0],)


def test_a_program_that_profiled_itself(tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    own.touch()
    manifest(tmp_path, kept=[], script_traces=[str(own), str(tmp_path / "moved.json")], ended="finished")
    assert read_result(str(tmp_path), 0, 1, ()).traces == (str(own),)


def test_a_run_that_left_nothing(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{")
    for folder in (None, str(tmp_path), str(tmp_path / "gone")):
        result = read_result(folder, 2, 0.1, ())
        assert (result.traces, build_recording(result).table, result.exit_status, result.end_reason) == (
            (),
            None,
            2,
            None,
        )


def test_a_manifest_of_the_wrong_types_is_one_line(tmp_path: Path) -> None:
    manifest(tmp_path, "manifest.rank0.json", rank="first", kept=[{"trace": "a"}])
    manifest(tmp_path, "manifest.rank1.json", rank=1, kept=[{"trace": 5}])
    manifest(tmp_path, "manifest.rank2.json", rank=2, kept=[{"trace": "c"}], schema=9)
    (tmp_path / "manifest.rank3.json").write_text("[" * 100_000)
    result = read_result(str(tmp_path), 0, 1, ())
    assert result.traces == (str(tmp_path / "c"),)
    assert result.problems == (
        "manifest.rank0.json: rank is not a whole number",
        "manifest.rank1.json: kept[0].trace is not text",
        "manifest.rank2.json: written by a newer version (9, known is 1); the known part was read",
        "manifest.rank3.json: the file is not an object",
    )


def test_a_nul_in_a_path_is_refused(tmp_path: Path) -> None:
    manifest(tmp_path, kept=[], script_traces=["/a\0b"])  # os.path.exists would raise ValueError
    result = read_result(str(tmp_path), 0, 1, ())
    assert (result.traces, result.problems) == (
        (),
        ("manifest.json: script_traces[0] contains a character that no path can have",),
    )
