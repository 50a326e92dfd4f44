"""Commands about a trace whose graphs were replayed: `--capture`, and captures beside the file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.command_line import call_main, read_error_line, read_json_answer
from tests.helpers.paths import FIXTURES
from torchprof_samples import find
from torchprof_tui.analysis.graphs.captured_ops import get_captured_ops
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.open.main import name_captures as use_captures_on_opening
from torchprof_tui.trace.loading.open_ranks import RanksOpener, RemoteOpener
from torchprof_tui.trace.loading.opener import SingleTraceOpener
from torchprof_tui.trace.loading.progress import ignore_progress
from torchprof_tui.trace.specs.rank_files import RankFile

GRAPHS = FIXTURES / "graphs"
REPLAY, EAGER, CAPTURE = (GRAPHS / f"{name}.json.gz" for name in ("replay_1", "eager_1", "capture_1_bs8"))


def kernels_and_ops(rows: list[dict[str, Any]], mark: str) -> dict[str, tuple[int, float]]:
    return {row["name"]: (row["calls"], row["self_gpu_us"]) for row in rows if row["name"].endswith(mark)}


def test_info_counts_replays_with_and_without_a_capture(capsys: pytest.CaptureFixture[str]) -> None:
    (alone,) = read_json_answer(capsys, "info", REPLAY, "--json")["graphs"]
    assert (alone["launches"], alone["kernels"], alone["matched"], alone["source"]) == (3, 116, 0, "none")
    assert list(alone["unmatched"].values()) == [116]
    (joined,) = read_json_answer(capsys, "info", REPLAY, "--capture", EAGER, "--json")["graphs"]
    assert (joined["matched"], joined["source"], joined["unmatched"]) == (116, "eager", {})
    assert joined["captures"] == [str(EAGER)]
    assert sum(joined["uncertain"].values()) == 34  # of the replay with batch size 1


def test_info_of_a_trace_without_graphs_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert read_json_answer(capsys, "info", EAGER, "--json")["graphs"] == []


def test_info_says_in_words_how_many_ops_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call_main(capsys, "info", REPLAY, "--capture", CAPTURE)
    assert "3 launches replayed 116 kernels, copies and fills; the ops of 78 are known" in out
    assert "without an op: 38, no capture has these kernels in this order" in out


def test_a_capture_beside_the_file_is_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "capture_traces").mkdir()
    shutil.copy(REPLAY, tmp_path)
    for size in (1, 8):
        shutil.copy(GRAPHS / f"capture_1_bs{size}.json.gz", tmp_path / "capture_traces")
    (graphs,) = read_json_answer(capsys, "info", tmp_path / REPLAY.name, "--json")["graphs"]
    assert (graphs["matched"], graphs["source"]) == (116, "capture")


def test_a_damaged_capture_beside_the_file_is_a_remark(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "capture_traces").mkdir()
    shutil.copy(REPLAY, tmp_path)
    (tmp_path / "capture_traces" / "bs_8.json").write_text("no trace")
    answer = read_json_answer(capsys, "info", tmp_path / REPLAY.name, "--json")
    assert answer["graphs"][0]["matched"] == 0
    (remark,) = [remark for remark in answer["doctor"] if remark["kind"] == "capture"]
    assert remark["example"].startswith("bs_8.json: ")


def test_the_table_has_the_captured_ops_with_the_eager_counts(capsys: pytest.CaptureFixture[str]) -> None:
    rows = read_json_answer(capsys, "table", REPLAY, "--capture", EAGER, "--json")["rows"]
    captured = kernels_and_ops(rows, " (captured)")
    assert captured["aten::addmm (captured)"][0] == 3 * 12
    assert captured["aten::cos (captured)"][0] == 3
    kernels = sum(row["self_gpu_us"] for row in rows if row["device"] == "GPU")
    assert sum(time for _, time in captured.values()) == pytest.approx(kernels, abs=0.1)


def test_a_capture_changes_nothing_in_the_table_but_the_launch(capsys: pytest.CaptureFixture[str]) -> None:
    alone = read_json_answer(capsys, "table", REPLAY, "--json")["rows"]
    joined = read_json_answer(capsys, "table", REPLAY, "--capture", EAGER, "--json")["rows"]
    replayed = sum(row["self_gpu_us"] for row in alone if row["device"] != "CPU")
    for row, own in zip((row for row in joined if "(captured)" not in row["name"]), alone, strict=True):
        if own["name"] == "cudaGraphLaunch":  # it alone contains what was replayed
            assert (own["gpu_us"], row["gpu_us"]) == (0, pytest.approx(replayed))
            own |= {column: row[column] for column in ("gpu_us", "gpu_share", "gpu_avg_us")}
        assert row == own


def test_modules_of_the_capture_get_the_time_of_the_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    rows = read_json_answer(capsys, "table", REPLAY, "--capture", CAPTURE, "--by", "module", "--json")["rows"]
    names = {row["name"] for row in rows}
    assert {"M_0/Block_1/Linear_6 (captured)", "M_0/Block_2/LayerNorm_2 (captured)"} <= names


def test_shapes_and_flops_of_the_capture_are_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    rows = read_json_answer(capsys, "table", REPLAY, "--capture", EAGER, "--by", "shape", "--flops", "--json")["rows"]
    (up,) = [row for row in rows if row["input_shapes"] == "[[1024], [512, 256], [256, 1024], [], []]"]
    assert (up["name"], up["calls"]) == ("aten::addmm (captured)", 9)
    assert up["flops"] == 9 * 2 * 512 * 256 * 1024


def test_the_chain_continues_in_the_capture(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = "void at::native::vectorized_elementwise_kernel<8, at::native::cos_kernel"
    names = [row["name"] for row in read_json_answer(capsys, "table", REPLAY, "--of", "kernels", "--json")["rows"]]
    (name,) = [name for name in names if name.startswith(kernel)]
    found = read_json_answer(capsys, "chain", REPLAY, "--event", name, "--capture", CAPTURE, "--json")
    assert [hop["name"] for hop in found["chain"]][-2] == "cudaGraphLaunch"
    captured = found["captured"]
    assert (captured["source"], captured["op"]) == ("capture", "aten::cos")
    assert captured["input_shapes"] == [[8, 64, 256]]
    assert [hop["role"] for hop in captured["chain"]][-2:] == ["op", "launch"]
    assert captured["line_source"]["function"] == "forward"


def test_the_chain_says_why_the_op_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    found = read_json_answer(capsys, "chain", REPLAY, "--event", "cudaGraphLaunch", "--json")
    assert found["captured"]["source"] == "none"
    assert "--capture" in found["captured"]["reason"]
    assert read_json_answer(capsys, "chain", EAGER, "--event", "aten::cos", "--json")["captured"] is None


def test_the_chain_as_text_marks_what_is_captured(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call_main(capsys, "chain", REPLAY, "--event", "cudaGraphLaunch", "--capture", CAPTURE)
    assert "From the capture: aten::" in out
    assert f"in the capture {CAPTURE}" in out.replace("\n", "")


def test_check_knows_how_many_ops_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    found = read_json_answer(capsys, "check", REPLAY, "--capture", EAGER, "--json")
    (replay,) = [each for each in found["notes"] if each["id"] == "graph-replay"]
    assert "ops of 116 of 116 in the whole trace are known from a capture" in str(replay)


@pytest.mark.parametrize("command", [("info",), ("table",), ("check",), ("chain", "--event", "cudaGraphLaunch")])
def test_a_capture_that_cannot_be_read_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: tuple[str, ...]
) -> None:
    missing = tmp_path / "missing.json"
    line = read_error_line(capsys, command[0], REPLAY, *command[1:], "--capture", missing)
    assert "--capture: " in line
    assert "missing.json" in line
    assert "no traces in this folder" in read_error_line(
        capsys, command[0], REPLAY, *command[1:], "--capture", tmp_path
    )


def test_a_folder_of_captures_can_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    (graphs,) = read_json_answer(capsys, "info", REPLAY, "--capture", GRAPHS, "--json")["graphs"]
    assert graphs["matched"] == 116
    assert len(graphs["captures"]) == 8


def test_the_explorer_takes_captures_of_one_trace() -> None:
    opening = SingleTraceOpener(str(REPLAY))
    use_captures_on_opening(opening, [str(EAGER)])
    assert opening.captures == (str(EAGER),)
    with pytest.raises(UsageError, match=r"missing\.json: no such file or folder"):
        use_captures_on_opening(opening, ["missing.json"])
    several = RanksOpener([RankFile("a", 0), RankFile("b", 1)], "ranks", "", False)
    use_captures_on_opening(several, [str(EAGER)])
    assert several.captures == (str(EAGER),)
    elsewhere = RemoteOpener(("host:a", "host:b"), "ranks", "", False)
    with pytest.raises(UsageError, match="not with those of other hosts"):
        use_captures_on_opening(elsewhere, [str(EAGER)])


async def test_an_opened_trace_has_the_captures_that_were_named() -> None:
    opening = SingleTraceOpener(str(REPLAY))
    opening.captures = (str(EAGER),)
    opening.start()
    try:
        trace = await opening.load_trace(ignore_progress)
        ops = get_captured_ops(trace)
        assert ops is not None
        assert ops.matched_count == 116
    finally:
        opening.cancel()


# -- several ranks -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks with the same replays; the capture of rank 0 is without a second stream, and fits neither."""
    folder = tmp_path_factory.mktemp("ranks")
    for rank in (0, 1):
        shutil.copy(REPLAY, folder / f"rank{rank}.json.gz")
    (folder / "captures").mkdir()
    shutil.copy(GRAPHS / "capture_0_bs8.json.gz", folder / "captures" / "bs_8_rank0.json.gz")
    shutil.copy(CAPTURE, folder / "captures" / "bs_8_rank1.json.gz")
    return folder


def test_each_rank_has_the_capture_of_its_own(capsys: pytest.CaptureFixture[str], two_ranks: Path) -> None:
    ranks = [two_ranks / f"rank{number}.json.gz" for number in (0, 1)]
    graphs = read_json_answer(capsys, "info", *ranks, "--capture", two_ranks / "captures", "--json")["graphs"]
    assert [(each["rank"], each["matched"]) for each in graphs] == [(0, 0), (1, 78)]
    assert [[Path(name).name for name in each["captures"]] for each in graphs] == [
        ["bs_8_rank0.json.gz"],
        ["bs_8_rank1.json.gz"],
    ]


def test_a_capture_without_a_rank_is_used_for_all_ranks(capsys: pytest.CaptureFixture[str], two_ranks: Path) -> None:
    ranks = [two_ranks / f"rank{number}.json.gz" for number in (0, 1)]
    graphs = read_json_answer(capsys, "info", *ranks, "--capture", EAGER, "--json")["graphs"]
    assert [each["matched"] for each in graphs] == [116, 116]


async def test_opened_ranks_have_the_captures_that_were_named(two_ranks: Path) -> None:
    opening = RanksOpener([RankFile(str(two_ranks / f"rank{n}.json.gz"), n) for n in (0, 1)], "ranks", "", False)
    opening.captures = (str(two_ranks / "captures"),)
    try:
        trace = await opening.load_trace(ignore_progress)
        found = [get_captured_ops(rank.trace) for rank in trace.all_ranks]
        assert [ops and ops.matched_count for ops in found] == [0, 78]
    finally:
        opening.close()


# -- diff and snapshot -------------------------------------------------------------------------------------


def test_diff_compares_an_eager_run_with_replays(capsys: pytest.CaptureFixture[str]) -> None:
    rows = read_json_answer(capsys, "diff", EAGER, REPLAY, "--json", "--capture", CAPTURE)["ops"]
    names = {row["name_b"] for row in rows if row["status"] != "removed"}
    assert {"aten::cos (captured)", "aten::addmm (captured)"} <= names
    alone = read_json_answer(capsys, "diff", EAGER, REPLAY, "--json")["ops"]
    assert not any("(captured)" in row["name_b"] for row in alone)


def test_diff_names_a_capture_that_cannot_be_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    line = read_error_line(capsys, "diff", EAGER, REPLAY, "--capture", tmp_path / "missing.json")
    assert "--capture: " in line


@pytest.mark.long
def test_a_snapshot_shows_the_ops_of_the_capture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for option, expected in (("--capture", True), (None, False)):
        named = [option, str(CAPTURE)] if option else []
        status, _, error = call_main(
            capsys,
            "snapshot",
            REPLAY,
            *named,
            "--keys",
            f"T{',down,right' * 12}",
            "-o",
            tmp_path / "out.txt",
            "--no-cache",
        )
        assert status == 0, error
        assert ("aten::addmm (captured)" in (tmp_path / "out.txt").read_text()) is expected


def test_a_sample_can_be_named_as_a_capture(capsys: pytest.CaptureFixture[str]) -> None:
    eager = str(find("generate_eager").path)
    names = ("sample:generate_graph", "--capture", "sample:generate_eager")
    (graphs,) = read_json_answer(capsys, "info", *names, "--json")["graphs"]
    assert graphs["captures"] == [eager]
    opening = SingleTraceOpener(str(REPLAY))
    use_captures_on_opening(opening, ["sample:generate_eager"])
    assert opening.captures == (eager,)
    assert "nothing" in read_error_line(capsys, "info", REPLAY, "--capture", "sample:nothing")
