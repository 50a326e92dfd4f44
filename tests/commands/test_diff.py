"""`diff`: what scripts and CI get, what a person reads, and one line for what cannot be compared."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.command_line import call_main, read_error_line, read_json_answer, read_table_rows
from tests.helpers.long_run import keep_some
from tests.helpers.paths import FIXTURES
from tests.helpers.pattern_traces import GEMM, op_with_work
from tests.helpers.trace_builder import Entry, step
from torchprof_tui.analysis.compare.account import Account, PartChange
from torchprof_tui.analysis.compare.step_selection import ComparisonError, parse_step_numbers
from torchprof_tui.analysis.compare.waterfall import build_rows
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.diff.main import parse_time_limit
from torchprof_tui.ui.common.text_charts import format_waterfall

NAIVE, FLASH, RANKS = "sample:attention_naive", "sample:attention_flash", "sample:train_gpt_2ranks"
SIDES = {"label", "steps", "start_ns", "duration_ns", "left_out"}


@pytest.fixture
def written(tmp_path: Path) -> Any:
    """Write a trace of four steps whose kernel takes as long as given, with a spread of 1 µs; return its path."""

    def write(name: str, kernel_time: float, op: str = "aten::mm", steps: int = 4) -> str:
        entries: list[Entry] = []
        start = 0.0
        for number in range(steps):
            length = kernel_time + 30 + number % 2
            entries += [step(number, start, length), *op_with_work(op, start + 1, start + 12, kernel_time, GEMM)]
            start += length
        path = tmp_path / name
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": entries}))
        return str(path)

    return write


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    answer: dict[str, Any] = read_json_answer(capsys, "diff", *words, "--json", "--no-cache")
    return answer


def read(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    status, out, _ = call_main(capsys, "diff", *words, "--no-cache")
    assert status == 0
    return out


def test_json_as_the_contract_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, NAIVE, FLASH)
    assert answer["schema"] == "torchprof-tui/diff/1"
    assert set(answer["a"]) == set(answer["b"]) == SIDES
    assert answer["a"]["label"] == NAIVE
    assert answer["a"]["steps"] == [2, 3, 4]  # the first one begins where the work from before the recording has ended
    assert answer["b"]["steps"] == [3, 4]
    assert answer["a"]["left_out"] == []
    assert "step #2" in answer["b"]["left_out"][0]
    assert [each["what"] for each in answer["comparable"]] == ["steps compared"]
    total = answer["step_us"]
    assert total["delta"] == pytest.approx(total["b"] - total["a"])
    assert total["within_noise"] is False
    assert sum(part["delta_us"] for part in answer["parts"]) == pytest.approx(total["delta"])
    assert {"name", "a_us", "b_us", "delta_us", "within_noise"} <= set(answer["parts"][0])
    verdict = answer["verdict"]
    assert verdict["a"]["regime"] == verdict["b"]["regime"] == "compute-bound"
    assert [cause["cause"] for cause in verdict["causes"]] == ["gpu:elementwise", "gpu:softmax", "gpu:gemm"]
    assert "memory-bound-elementwise" in {found["id"] for found in verdict["patterns_a_only"]}
    assert verdict["patterns_b_only"] == []


@pytest.mark.long
def test_what_is_new_at_the_peak(capsys: pytest.CaptureFixture[str]) -> None:
    start, steady = (str(FIXTURES / "memory" / f"{name}.pt.trace.json.xz") for name in ("start", "steady"))
    change = ask(capsys, start, steady)["memory"]
    assert change["device"] == "GPU 0"
    assert sum(part["delta_bytes"] for part in change["parts"]) == change["delta_bytes"]
    assert change["delta_bytes"] == change["b_bytes"] - change["a_bytes"]
    assert ask(capsys, NAIVE, FLASH)["memory"] is None
    text = read(capsys, start, steady)
    assert "at the peak of memory, GPU 0" in text
    assert "optimizer state, aten::zeros_like" in text
    assert "at the peak" not in read(capsys, NAIVE, FLASH)


ROW = {
    "status", "name_a", "name_b", "calls_a", "calls_b", "cpu_us_a", "cpu_us_b", "gpu_us_a", "gpu_us_b", "delta_us",
}  # fmt: skip


@pytest.mark.parametrize("by", ["op", "module", "kernel"])
def test_matched_rows_sum_to_their_total(by: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, NAIVE, FLASH, "--by", by)
    assert set(answer["ops"][0]) >= ROW
    assert {row["status"] for row in answer["ops"]} <= {"matched", "changed", "added", "removed"}
    for key in ("calls_a", "calls_b", "gpu_us_a", "gpu_us_b", "delta_us"):
        rows = [*answer["ops"], answer["ops_not_matched"]]
        assert sum(row[key] for row in rows) == pytest.approx(answer["ops_total"][key])


def test_names_are_counted_in_the_whole_of_both_traces(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {(row["device"], row["name"]): row for row in ask(capsys, NAIVE, FLASH)["by_name"]}
    row = rows["CPU", "aten::softmax"]
    assert (row["calls_a"], row["calls_b"]) == (3, 0)  # all three steps, one of them not compared
    table = read_table_rows(capsys, NAIVE, "--no-cache")
    (expected,) = [each for each in table if each["name"] == "aten::softmax"]
    assert row["us_a"] == pytest.approx(expected["cpu_us"])
    gpu = [row for (device, _), row in rows.items() if device == "GPU"]
    for trace, calls in ((NAIVE, "calls_a"), (FLASH, "calls_b")):
        links = read_json_answer(capsys, "info", trace, "--json", "--no-cache")["links"]
        assert sum(row[calls] for row in gpu) == links["gpu_events"]


@pytest.mark.long
def test_rows_of_other_names_show_both(capsys: pytest.CaptureFixture[str]) -> None:
    out = read(capsys, "sample:geglu_mlp_eager", "sample:geglu_mlp_compile")
    assert "* aten::gelu + aten::mul → triton_poi_fused__unsafe_view_gelu_mul_0" in out
    assert "* mul bf16 → triton gelu+mul" in read(
        capsys, "sample:geglu_mlp_eager", "sample:geglu_mlp_compile", "--by", "kernel"
    )


def test_text_fits_80_columns_and_draws_a_waterfall(capsys: pytest.CaptureFixture[str]) -> None:
    out = read(capsys, NAIVE, FLASH, "--by", "class")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("A  sample:attention_naive  3 steps, #2 to #4: 2.29 ms a step")
    assert "14 times as fast" in out
    assert "launches a step: 7 → 1 (-86 %, down by more than half)" in out
    (row,) = [line for line in lines if line.startswith("GPU: elementwise") and "░" in line]
    assert "-966.7 µs" in row
    (row,) = [line for line in lines if line.startswith("GPU: attention") and "█" in line]
    assert "+157.0 µs" in row


def test_the_waterfall_leads_from_a_to_b(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, NAIVE, FLASH)
    a, b = round(answer["step_us"]["a"] * 1000), round(answer["step_us"]["b"] * 1000)
    parts = [(part["id"], round(part["a_us"] * 1000), round(part["b_us"] * 1000)) for part in answer["parts"]]
    account = Account(a, b, None, tuple(_make_part(*part) for part in parts), True)
    for count in (1, 3, 12):
        rows = build_rows(account, count)
        assert rows[0].start == a
        assert rows[-1].end == b
        assert all(first.end == second.start for first, second in pairwise(rows))
        assert sum(row.delta for row in rows) == b - a


def _make_part(part_id: str, a: int, b: int) -> PartChange:
    return PartChange(part_id, part_id, a, b, None)


def test_by_class_and_by_cause_sum_to_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    for by in ("class", "cause"):
        answer = ask(capsys, NAIVE, FLASH, "--by", by)
        assert sum(row["delta_us"] for row in answer["rows"]) == pytest.approx(answer["step_us"]["delta"])
        assert sum(row["a_us"] for row in answer["rows"]) == pytest.approx(answer["step_us"]["a"])


def test_markdown_is_a_report_that_can_be_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    out = read(capsys, NAIVE, FLASH, "--markdown")
    assert "| GPU: elementwise | 966.7 µs | 0 ns | -966.7 µs |" in out
    assert f"torchprof-tui diff {NAIVE} {FLASH} --markdown" in out


def test_a_slower_step_fails_and_a_faster_one_does_not(capsys: pytest.CaptureFixture[str], written: Any) -> None:
    before, after = written("before.json", 500), written("after.json", 600)
    assert call_main(capsys, "diff", before, after, "--no-cache", "--fail-on", "+5%")[0] == 1
    assert call_main(capsys, "diff", after, before, "--no-cache", "--fail-on", "+5%")[0] == 0
    assert call_main(capsys, "diff", before, after, "--no-cache", "--fail-on", "+30%")[0] == 0
    assert call_main(capsys, "diff", before, after, "--no-cache", "--fail-on", "+90us")[0] == 1
    assert call_main(capsys, "diff", before, before, "--no-cache", "--fail-on", "+0%")[0] == 0


def test_a_difference_within_the_noise_does_not_fail(capsys: pytest.CaptureFixture[str], written: Any) -> None:
    before, after = written("before.json", 500), written("after.json", 500.4)
    status, out, _ = call_main(capsys, "diff", before, after, "--no-cache", "--fail-on", "+0%")
    assert status == 0
    assert "within the noise" in " ".join(out.split())


def test_one_step_cannot_tell_and_does_not_pass(capsys: pytest.CaptureFixture[str], written: Any) -> None:
    before, after = written("before.json", 500, steps=1), written("after.json", 600, steps=1)
    status, out, err = call_main(capsys, "diff", before, after, "--no-cache", "--fail-on", "+5%")
    assert status == 3
    assert "cannot tell whether by chance" in " ".join(out.split())
    assert "--fail-on: cannot be told" in err
    assert err.endswith("--fail-on cannot be decided: exit status 3; to allow it: --undecided pass\n")
    words = ("diff", before, after, "--no-cache", "--json", "--undecided", "pass")
    status, out, err = call_main(capsys, *words, "--fail-on", "+5%")
    assert (status, json.loads(out)["failed"]) == (0, None)
    assert "--fail-on: cannot be told" in err
    assert "--undecided is about --fail-on" in read_error_line(capsys, *words)
    answer = ask(capsys, before, after)
    assert answer["step_us"]["noise"] is None
    assert "one step" in answer["step_us"]["cannot_tell"]
    assert answer["parts"][0]["within_noise"] is None


def test_the_same_recording_twice_is_all_zero(capsys: pytest.CaptureFixture[str], written: Any, tmp_path: Path) -> None:
    path = written("a.json", 500)
    copy = tmp_path / "copy.json"
    copy.write_bytes(Path(path).read_bytes())
    for other in (path, str(copy)):
        assert read(capsys, path, other).splitlines()[-1] == "the same recording: nothing differs"
        answer = ask(capsys, path, other)
        assert answer["same_recording"]
        assert answer["step_us"]["delta"] == 0
        assert not any(part["delta_us"] for part in answer["parts"])


def test_many_left_out_steps_are_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    entries: list[Entry] = []
    start = 0.0
    for number in range(30):
        entries += [step(number, start, 20_000 * 0.9**number), *op_with_work("aten::mm", start + 1, start + 12, 5)]
        start += 20_000 * 0.9**number
    path = tmp_path / "warming.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": entries}))
    out = read(capsys, str(path), FLASH)
    assert out.count("left out: step #") == 4  # three of A, and the one of B
    assert "more of the first steps (--json)" in out


def test_two_steps_and_two_ranks_of_one_recording(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, NAIVE, NAIVE, "--steps", "3/#4")
    assert (answer["a"]["steps"], answer["b"]["steps"]) == ([3], [4])
    assert not answer["same_recording"]
    answer = ask(capsys, RANKS, RANKS, "--rank", "0/1")
    assert (answer["a"]["label"], answer["b"]["label"]) == (f"{RANKS} rank 0", f"{RANKS} rank 1")
    assert {part["id"]: part["delta_us"] for part in answer["parts"]}["exposed_communication"] < -9_000
    assert ask(capsys, RANKS, RANKS)["same_recording"]  # the first rank of both


@pytest.mark.long
def test_two_runs_are_compared_rank_by_rank(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The faulty run has a rank that comes late; the first rank stands for each run, and the others are told."""
    runs = []
    for state in ("faulty", "mended"):
        run = tmp_path / state
        run.mkdir()
        for rank in (0, 1):
            path = FIXTURES / "faults" / f"late_rank.{state}.rank{rank}.json.gz"
            (run / f"rank{rank}.json.gz").write_bytes(path.read_bytes())
        runs.append(str(run))
    answer = ask(capsys, *runs)
    assert [each["rank"] for each in answer["ranks"]] == [0, 1]
    assert answer["ranks"][0]["delta_us"] == pytest.approx(answer["step_us"]["delta"], abs=0.01)
    assert answer["a"]["label"] == f"{runs[0]} rank 0"
    assert "over 2 ranks a step changes by -34" in " ".join(read(capsys, *runs).split())
    assert ask(capsys, *runs, "--rank", "1")["ranks"] == []


def test_a_range_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, NAIVE, FLASH, "--range", "0..1ms/0..100us")
    assert answer["a"]["steps"] == [2, 3]  # those that lie in it on the CPU, and the work that they launched
    assert (answer["b"]["steps"], answer["b"]["duration_ns"]) == ([], 100_000)  # less than a step: one piece


@pytest.mark.parametrize(
    ("words", "expected"),
    keep_some(
        [
            ((NAIVE, FLASH, "--steps", "7..9"), "A (sample:attention_naive): no step #7 to #9: it has steps #2 to #4"),
            ((NAIVE, FLASH, "--steps", "2/9"), "B (sample:attention_flash): no step #9: it has steps #2 to #4"),
            ((NAIVE, FLASH, "--steps", "x"), "write 3..7"),
            ((NAIVE, FLASH, "--range", "5ms"), "expected T0:T1"),
            ((NAIVE, FLASH, "--range", "5s..6s"), "nothing in that range"),
            ((RANKS, FLASH), "A holds the ranks 0, 1 and B is a single trace: choose one rank with --rank N"),
            ((RANKS, RANKS, "--rank", "0/7"), "B has no rank 7, it holds 0, 1"),
            ((NAIVE, FLASH, "--rank", "0"), "both are single traces"),
            ((NAIVE, FLASH, "--rank", "x"), "ranks are numbers"),
            ((NAIVE, FLASH, "--fail-on", "5"), "+5% or +200us"),
            ((NAIVE, FLASH, "--by", "colour"), "invalid choice"),
            ((NAIVE, "no-such-file.json"), "B: no-such-file.json: no such file"),
            ((NAIVE,), "required: B"),
        ],
        6,
    ),
)
def test_what_cannot_be_compared_is_one_line(
    words: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert expected in read_error_line(capsys, "diff", *words, "--no-cache")


def test_a_trace_of_another_program_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "chrome.json"
    path.write_text('{"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 0, "dur": 5}]}')
    line = read_error_line(capsys, "diff", NAIVE, path, "--no-cache")
    assert f"B ({path}): no torch.profiler trace" in line


def test_names_from_a_trace_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str], written: Any) -> None:
    before, after = written("before.json", 500, op="aten::\x1b[31mmm"), written("after.json", 600, op="aten::mm")
    for words in ((), ("--markdown",)):
        out = read(capsys, before, after, *words)
        assert "\x1b" not in out


@pytest.mark.parametrize("text", ["", "5", "-5%", "+5", "x%", "-3us", "%"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"\+5%"):
        parse_time_limit(text)


@pytest.mark.parametrize("steps", ["9" * 5000, "0.." + "9" * 5000])
def test_a_step_number_without_end_is_refused(steps: str) -> None:
    with pytest.raises(ComparisonError, match="not steps"):
        parse_step_numbers(steps)


def test_an_axis_that_begins_above_zero_is_marked_as_cut() -> None:
    """Without a mark the bar of A, 11.1 ms, seemed shorter than that of a change of 2.71 ms."""
    parts = (_make_part("dispatch", 1_000_000, 3_710_000), _make_part("gemm", 10_100_000, 10_100_000))
    heading, a, *_, b = format_waterfall(Account(11_100_000, 13_810_000, None, parts, True))
    assert heading.split()[-3:-1] == ["╱from", "10.4"]
    assert all(line.split()[-1].startswith("╱█") for line in (a, b))
    heading, a, *_ = format_waterfall(Account(1_000_000, 3_710_000, None, parts[:1], True))
    assert "╱" not in heading + a
