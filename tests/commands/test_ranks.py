"""Several ranks on the command line: info, check, table, chain, as people and scripts meet them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.collective_reference import joined
from tests.helpers.command_line import call_main, read_error_line, read_json_answer, read_table_rows
from tests.helpers.long_run import keep_some
from tests.helpers.paths import find_shared_trace
from tests.helpers.rank_traces import late_rank


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three ranks, the second 3 ms late to the first collective of each of three steps."""
    late_rank(3, late=1).write(tmp_path)
    return tmp_path


def test_info_keeps_its_contract_and_tells_of_ranks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = read_json_answer(capsys, "info", folder, "--json")
    alone = [read_json_answer(capsys, "info", folder / f"rank{rank}.json", "--json") for rank in range(3)]
    for key in ("events", "drawn", "metadata", "flows", "bytes"):
        assert told[key] == sum(one[key] for one in alone), key
    assert told["events"] == told["drawn"] + told["metadata"] + told["flows"] + sum(told["not_drawn"].values())
    assert told["by_category"] == {key: 3 * count for key, count in alone[0]["by_category"].items()}
    assert len(told["lanes"]) == sum(len(one["lanes"]) for one in alone)
    assert {lane["rank"] for lane in told["lanes"]} == {0, 1, 2}
    assert {lane["kind"] for lane in told["lanes"]} == {"cpu", "gpu"}
    assert (told["rank"], told["world_size"]) == (None, 3)
    assert told["gpu_busy_ns"] == {f"{rank}:0": one["gpu_busy_ns"]["0"] for rank, one in enumerate(alone)}
    assert [(step["name"], step["rank"]) for step in told["steps"]] == [
        (f"ProfilerStep#{number}", rank) for rank in range(3) for number in range(3)
    ]
    assert [(rank["rank"], rank["aligned_by"], rank["error_ns"]) for rank in told["ranks"]] == [
        (number, "shared base time", 0) for number in range(3)
    ]
    assert told["collectives"] == {"joined": 6, "incomplete": 0, "differing": 0}
    assert told["problems"] == []
    assert read_json_answer(capsys, "info", folder, "--json")["cached"]


def test_info_for_people(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call_main(capsys, "info", folder)
    assert status == 0
    assert "NVIDIA H200, 3 ranks" in out
    assert out.count("shared base time, ±0 ns from 6 collectives") == 3
    assert "6 collectives matched" in out


@pytest.mark.long
def test_the_time_of_a_run_sums_over_its_ranks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = read_json_answer(capsys, "check", folder, "--json")
    length = told["scope"]["duration_ns"] / 1000
    trees = [rank["verdict"]["causes"] for rank in told["ranks"]]
    for causes in trees:
        assert sum(cause["us"] for cause in causes) == pytest.approx(length)
    time = read_json_answer(capsys, "info", folder, "--json")["time"]
    assert sum(cause["us"] for cause in time) == pytest.approx(length)
    by_cause = {cause["cause"]: cause["us"] for cause in time}
    expected: dict[str, float] = {}
    for cause in (cause for causes in trees for cause in causes):
        expected[cause["cause"]] = expected.get(cause["cause"], 0) + cause["us"] / len(trees)
    assert by_cause == pytest.approx(expected)
    assert ", mean of 3 GPUs" in call_main(capsys, "info", folder)[1]


def test_a_rank_that_is_missing_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "rank1.json").unlink()
    _, out, _ = call_main(capsys, "info", folder)
    assert "2 ranks of 3" in out


def test_arrivals_as_dictionaries_have_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = read_table_rows(capsys, folder, "--of", "arrivals")
    expected = []
    for its in joined(sorted(folder.glob("*.json"))).values():
        starts = sorted(start for start, _ in its.values())
        last = max(its, key=lambda rank: its[rank])
        expected.append((last, (starts[-1] - starts[-2]) / 1000, (starts[-1] - starts[0]) / 1000))
    assert sorted((row["last_rank"], row["late_by_us"], row["longest_wait_us"]) for row in rows) == sorted(expected)
    assert sorted(row["step"] for row in rows) == ["#0", "#0", "#1", "#1", "#2", "#2"]
    assert [row["waited_us"] for row in rows] == sorted((row["waited_us"] for row in rows), reverse=True)
    _, out, _ = call_main(capsys, "table", folder, "--of", "arrivals")
    assert "rank 1: last 3 of 6, waited" in out


def test_a_table_is_of_one_rank_and_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (0, 2):
        own = read_table_rows(capsys, folder / f"rank{number}.json")
        assert read_table_rows(capsys, folder, "--rank", str(number)) == own
    status, out, err = call_main(capsys, "table", folder, "--json")
    assert status == 0
    assert json.loads(out)["rows"] == read_table_rows(capsys, folder / "rank0.json")
    assert "rank 0 of 3 ranks; another: --rank N" in err


def test_check_names_the_rank(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = read_json_answer(capsys, "check", folder, "--json")
    late = next(one for one in told["patterns"] if one["id"] == "straggler")
    assert late["state"] == "fired"
    assert late["seen"].startswith("rank 1 arrives last at 3 of 3 collectives")
    assert late["at_stake_us"] <= 3 * (3003 + 2997) / 3 + 3  # to a microsecond for each collective, as clocks align
    assert {event["lane"] for event in late["evidence"]} == {f"rank {rank} stream 20" for rank in range(3)}
    assert [one["rank"] for one in told["ranks"]] == [0, 1, 2]
    assert told["verdict"] == told["ranks"][0]["verdict"]
    problems = [one for one in told["patterns"] if one["state"] == "fired" and one["severity"] == "problem"]
    worst = [one["at_stake_us"] for one in problems if one["significant"]]
    assert worst == sorted(worst, reverse=True)
    assert call_main(capsys, "check", folder, "--fail-on", "straggler")[0] == 1
    assert call_main(capsys, "check", folder / "rank1.json", "--fail-on", "straggler")[0] == 3  # cannot tell
    _, out, _ = call_main(capsys, "check", folder)
    assert "○ straggler" in out  # its own CPU is what the step waits for: an earlier arrival saves nothing
    assert "ranks 0, 2: " in out
    assert "rank 1: " in out


def test_what_all_ranks_have_in_common_is_said_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = read_json_answer(capsys, "check", folder, "--json")
    exposed = next(one for one in told["patterns"] if one["id"] == "exposed-comm")
    assert exposed["state"] == "fired"
    assert exposed["seen"].startswith("rank 0 (the same on all ranks): ") or exposed["seen"].startswith(
        "rank 0 (also on "
    )
    alone = [read_json_answer(capsys, "check", folder / f"rank{rank}.json", "--json") for rank in range(3)]
    stakes = [next(p for p in one["patterns"] if p["id"] == "exposed-comm")["at_stake_us"] for one in alone]
    assert exposed["at_stake_us"] <= max(stakes)  # what a late rank explains is its own


def test_a_chain_is_of_one_rank(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "cudaLaunchKernelExC"
    own = read_json_answer(capsys, "chain", folder / "rank2.json", "--event", name, "--json")
    told = read_json_answer(capsys, "chain", folder, "--event", name, "--json", "--rank", "2")
    assert [(hop["name"], hop["duration_ns"]) for hop in told["chain"]] == [
        (hop["name"], hop["duration_ns"]) for hop in own["chain"]
    ]
    assert told["of"] == own["of"] == 6
    assert told["rank"] == 2
    status, _, err = call_main(capsys, "chain", folder, "--event", name)
    assert (status, err) == (0, "rank 0; another: --rank N\n")


def test_wrong_calls_are_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there are ranks 0, 1, 2" in read_error_line(capsys, "table", folder, "--rank", "7")
    one = folder / "rank1.json"
    assert "the input is rank 1 only" in read_error_line(capsys, "table", one, "--rank", "0")
    assert call_main(capsys, "table", one, "--rank", "1")[0] == 0
    assert "needs several ranks" in read_error_line(capsys, "table", one, "--of", "arrivals")
    (folder / "rank9.json").write_text(one.read_text())
    assert "are both of rank 1" in read_error_line(capsys, "info", folder)
    one.write_text('{"traceEvents": 5}')
    (folder / "rank9.json").unlink()
    files = sorted(folder.glob("*.json"))
    status, out, err = call_main(capsys, "info", "--json", *files)
    assert (status, err.count("\n")) == (0, 1)
    assert err.startswith(f"torchprof-tui: left out: rank 1: {one}: not a trace")
    told = json.loads(out)
    assert [rank["rank"] for rank in told["ranks"]] == [0, 2]
    assert [(lost["rank"], lost["file"]) for lost in told["lost_ranks"]] == [(1, str(one))]
    for file in files:
        file.write_text('{"traceEvents": 5}')
    assert "(and 2 more that could not be opened)" in read_error_line(capsys, "info", *files)


@pytest.mark.long
def test_a_rank_that_was_cut_is_told_by_every_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "rank1.json"
    whole = path.read_text()
    path.write_text(whole[: whole.index('"cat": "kernel"')])
    says = f"torchprof-tui: {folder} is partial: rank 1: cut short; see `info`"
    calls = [
        ("check", "--json"),
        ("table", "--json"),
        ("chain", "--event", "cudaLaunchKernelExC", "--json", "--rank", "0"),
        ("slice", "--range", "0:20ms", "-o", folder / "part.out.json", "--json", "--rank", "1"),
    ]
    told = {}
    for name, *words in calls:
        status, out, err = call_main(capsys, name, folder, *words)
        assert status == 0, err
        assert err.splitlines()[0] == says
        told[name] = json.loads(out)
        (folder / "part.out.json").unlink(missing_ok=True)
    assert [one["count"] for one in told["check"]["partial"]] == [1]
    assert told["chain"]["partial"] == []  # rank 0 is whole
    assert [one["kind"] for one in told["slice"]["partial"]] == ["cut short"]
    late = {one["id"]: one for one in told["check"]["patterns"]}
    assert late["exposed-comm"]["state"] == "fired"  # by the ranks that can tell
    verdicts = [one["verdict"] for one in told["check"]["ranks"]]
    assert (verdicts[1]["regime"], verdicts[1]["gpu_busy"]) == ("unknown", None)
    assert "the file is partial (cut short)" in verdicts[1]["first"]
    assert "is partial" not in call_main(capsys, "info", folder)[2]


@pytest.mark.long
@pytest.mark.parametrize(
    ("run", "first"), keep_some([("ddp_4ranks", "straggler"), ("fsdp_4ranks", "overhead-bound")], 1)
)
def test_the_first_problem_is_what_the_verdict_says_of_the_late_rank(
    run: str, first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Waiting for a late rank is not claimed by exposed communication, which has the same collectives."""
    path = find_shared_trace(run)
    if not path.exists():
        pytest.skip("needs the shared traces")
    told = read_json_answer(capsys, "check", path, "--json")
    assert "is late at" in told["verdict"]["first"]
    worst = told["patterns"][0]
    assert (worst["id"], worst["leading"], worst["significant"]) == (first, True, True)


@pytest.mark.long
def test_a_pause_of_a_rank_that_is_not_the_latest_is_named_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    """Rank 1 sleeps 3 ms before each backward pass, and rank 2 is later still: its CPU is slower."""
    path = find_shared_trace("ddp_4ranks")
    if not path.exists():
        pytest.skip("needs the shared traces")
    firsts = [one["verdict"]["first"] for one in read_json_answer(capsys, "check", path, "--json")["ranks"]]
    pause = "pauses 3.12 ms before aten::ones_like in each step"
    for rank, name in ((0, "rank 1"), (1, "this rank"), (3, "rank 1")):
        assert firsts[rank].endswith(
            f"its host is slow, aten ops take 1.31× as long as on the fastest rank; {name} {pause}"
        )
