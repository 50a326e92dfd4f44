"""Serving steps on the command line and in the Python API: the same numbers, and what records them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import torchprof_tui as tt
from tests.helpers.command_line import call_main, read_error_line, read_json_answer, read_table_rows
from tests.helpers.serving_traces import serving_entries
from tests.helpers.trace_builder import cpu, step


@pytest.fixture
def serving(tmp_path: Path) -> Path:
    path = tmp_path / "serving.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": serving_entries(2)}))
    return path


@pytest.fixture
def training(tmp_path: Path) -> Path:
    path = tmp_path / "training.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [step(1, 0, 10), cpu("aten::mm", 1, 5)]}))
    return path


def test_info_lists_kinds_in_the_steps_and_sums_them(capsys: pytest.CaptureFixture[str], serving: Path) -> None:
    answer = read_json_answer(capsys, "info", serving, "--json")
    assert [each["kind"] for each in answer["steps"]] == ["prefill", "decode", "decode", "decode", "mixed"] * 2
    assert (answer["steps"][0]["batch"], answer["steps"][0]["tokens"], answer["steps"][0]["kv_length"]) == (
        2,
        512,
        None,
    )
    (told,) = answer["serving"]
    assert (told["engines"], told["steps"], told["layers"]) == (["vLLM"], 10, None)
    assert "cannot_tell" not in told
    decode = next(kind for kind in told["kinds"] if kind["kind"] == "decode")
    assert (decode["steps"], decode["tokens"], decode["step_p50_ns"], decode["graph_share"]) == (6, 12, 40_000, 0.8)
    assert decode["not_graphed"][0]["kernels"] == 6


def test_info_prints_a_table_of_the_kinds(capsys: pytest.CaptureFixture[str], serving: Path) -> None:
    _, out, _ = call_main(capsys, "info", serving)
    assert "Serving steps (annotated as vLLM does)" in out
    assert "decode: 6 of 30 kernels not in graphs: launched before or after the graph" in out
    assert "no GPU worked in" in out


def test_without_serving_steps_info_prints_none_and_says_in_json_how_to_record_them(
    capsys: pytest.CaptureFixture[str], training: Path
) -> None:
    assert "Serving" not in call_main(capsys, "info", training)[1]
    answer = read_json_answer(capsys, "info", training, "--json")
    assert answer["steps"][0]["kind"] is None
    (told,) = answer["serving"]
    assert told["steps"] == 0
    assert told["cannot_tell"].startswith("no steps of a serving engine were recorded; vLLM names its steps")
    assert "start_profile" in told["cannot_tell"]


def test_a_table_by_kind_of_a_trace_without_any_says_how_to_record_them(
    capsys: pytest.CaptureFixture[str], training: Path
) -> None:
    line = read_error_line(capsys, "table", training, "--by", "step-kind")
    assert "no steps of a serving engine were recorded; vLLM names" in line


def test_table_and_api_say_the_same(capsys: pytest.CaptureFixture[str], serving: Path) -> None:
    rows = {row["name"]: row for row in read_table_rows(capsys, serving, "--by", "step-kind")}
    opened = tt.open(serving)
    report = opened.serving()
    assert [kind.kind.value for kind in report.kinds] == ["prefill", "decode", "mixed"]
    for kind in report.kinds:
        row = rows[kind.kind.value]
        assert (row["steps"], row["tokens"]) == (kind.steps, kind.tokens)
        assert row["step_p95_us"] == kind.step_p95 / 1000
        assert row["tokens_per_second"] == kind.tokens_per_second
    assert [each.kind for each in opened.steps[:2]] == ["prefill", "decode"]
    assert opened.steps[0].tokens == 512
    assert (report.steps.end - report.steps.start == [each.duration_ns for each in opened.steps]).all()
    table = opened.table(by="step-kind")
    assert {row.name: row.steps for row in table} == {"prefill": 2, "decode": 6, "mixed": 2}


def test_the_api_raises_where_there_are_no_steps(training: Path) -> None:
    with pytest.raises(tt.TraceError, match="no steps of a serving engine were recorded"):
        tt.open(training).serving()


def test_steps_are_compared_where_they_are_named_and_the_whole_traces_else(
    capsys: pytest.CaptureFixture[str], serving: Path
) -> None:
    _, out, _ = call_main(capsys, "diff", serving, serving, "--steps", "1..3")
    assert "3 steps, #1 to #3" in out
    _, out, _ = call_main(capsys, "diff", serving, serving)
    assert "steps, #" not in out


def test_a_step_restricts_a_table_and_names_events(capsys: pytest.CaptureFixture[str], serving: Path) -> None:
    rows = read_table_rows(capsys, serving, "--step", "3")
    assert {row["name"]: row["calls"] for row in rows}["gemm"] == 5
    assert np.count_nonzero(np.asarray(tt.open(serving).events.step) == 3) > 5


def test_a_chain_has_its_step_once(capsys: pytest.CaptureFixture[str], serving: Path) -> None:
    chain = read_json_answer(capsys, "chain", serving, "--event", "gemm", "--nth", "3", "--json")["chain"]
    assert [hop["name"] for hop in chain] == ["execute_context_0(0)_generation_2(2)", "cudaGraphLaunch", "gemm"]


def test_patterns_do_not_take_unlike_steps_for_iterations(capsys: pytest.CaptureFixture[str], serving: Path) -> None:
    answer = read_json_answer(capsys, "check", serving, "--json")
    states = {pattern["id"]: pattern["state"] for pattern in answer["patterns"]}
    assert states["not-warmed-up"] != "fired"


def test_check_has_the_serving_steps_that_info_has(capsys: pytest.CaptureFixture[str], serving: Path) -> None:
    checked = read_json_answer(capsys, "check", serving, "--json")
    assert checked["serving"] == read_json_answer(capsys, "info", serving, "--json")["serving"]
    (report,) = tt.open(serving).check().serving
    assert [kind.steps for kind in report.kinds] == [kind["steps"] for kind in checked["serving"][0]["kinds"]]
    _, out, _ = call_main(capsys, "check", serving, "--markdown")
    lines = out.splitlines()
    start = lines.index("## Serving steps")
    assert [line.split(" | ")[0] for line in lines[start + 4 : start + 7]] == ["| prefill", "| decode", "| mixed"]
    assert any(line.startswith("- decode: 6 of 30 kernels not in graphs: launched before or after") for line in lines)


def test_check_of_a_range_has_the_steps_that_start_in_it(capsys: pytest.CaptureFixture[str], serving: Path) -> None:
    steps = read_json_answer(capsys, "info", serving, "--json")["steps"]
    t0, t1 = steps[1]["start_ns"], steps[3]["start_ns"]
    answer = read_json_answer(capsys, "check", serving, "--json", "--range", f"{t0}ns:{t1}ns")
    assert [(kind["kind"], kind["steps"]) for kind in answer["serving"][0]["kinds"]] == [("decode", 2)]
    (report,) = tt.open(serving).check(t0, t1).serving
    assert [kind.steps for kind in report.kinds] == [2]
    (nothing,) = tt.open(serving).check(t0 + 1, t0 + 2).serving
    assert nothing.cannot_tell == "no step of the serving engine starts in this range"


def test_check_of_a_training_run_has_no_serving_section(capsys: pytest.CaptureFixture[str], training: Path) -> None:
    (told,) = read_json_answer(capsys, "check", training, "--json")["serving"]
    assert (told["steps"], told["kinds"]) == (0, [])
    assert "Serving" not in call_main(capsys, "check", training, "--markdown")[1]


def test_input_of_a_serving_engine_is_not_said_to_lack_steps(capsys: pytest.CaptureFixture[str], serving: Path) -> None:
    patterns = read_json_answer(capsys, "check", serving, "--json")["patterns"]
    (found,) = [each for each in patterns if each["id"] == "input-starved"]
    assert found["state"] == "cannot_tell"
    assert found["reason"].startswith("no data loader was recorded; a serving engine waits for requests")
