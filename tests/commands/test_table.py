"""`torchprof-tui table` as people and scripts meet it."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from tests.helpers.command_line import read_error_line, read_table_rows, run_program
from tests.helpers.long_run import keep_some
from tests.helpers.paths import FIXTURES
from tests.helpers.trace_builder import cpu
from torchprof_samples import find
from torchprof_tui.cli import main

SAMPLE = find("matmul_add_64_cold_eager").path
STACKED = find("train_gpt_stack_memory").path
ORACLE = json.loads((FIXTURES / "key_averages.json").read_text())


def test_json_is_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    told = read_table_rows(capsys, SAMPLE)
    keys = ("name", "calls", "self_cpu_us", "cpu_us", "self_gpu_us", "gpu_us")
    want = [[name, *rest] for name, _, *rest in ORACLE["matmul_add_64_cold_eager"]["rows"]]
    assert [[row[key] for key in keys] for row in told] == want
    assert [row["device"] for row in told] == [
        "GPU" if device == "CUDA" else "CPU" for _, device, *_ in ORACLE["matmul_add_64_cold_eager"]["rows"]
    ]


@pytest.mark.parametrize("column", ["calls", "self_cpu", "cpu_us", "gpu_avg", "self_cuda_time_total", "count"])
def test_sorted_and_cut(column: str, capsys: pytest.CaptureFixture[str]) -> None:
    key = {"self_cpu": "self_cpu_us", "gpu_avg": "gpu_avg_us", "self_cuda_time_total": "self_gpu_us", "count": "calls"}
    rows = read_table_rows(capsys, STACKED, "--sort", column)
    values = [row[key.get(column, column)] for row in rows]
    assert values == sorted(values, reverse=True)
    assert len(values) > 100
    cut = read_table_rows(capsys, STACKED, "--sort", column, "--limit", "3")
    # As on the screen, which lists annotations apart: they contain the work of other rows.
    assert cut == [row for row in rows if not row["annotation"]][:3]


def test_by_and_step(capsys: pytest.CaptureFixture[str]) -> None:
    shapes = read_table_rows(capsys, STACKED, "--by", "shape")
    assert any(row["input_shapes"].startswith("[[8, 128") for row in shapes)
    stacks = read_table_rows(capsys, STACKED, "--by", "stack")
    assert any(len(row["stack"]) == 5 for row in stacks if row["stack"])
    modules = read_table_rows(capsys, STACKED, "--by", "module")
    assert any(row["name"].startswith("GPT_0/") for row in modules)
    assert {row["name"] for row in read_table_rows(capsys, STACKED, "--by", "class")} >= {
        "gemm",
        "copy",
    }
    steps = read_table_rows(capsys, STACKED, "--by", "step")
    assert [row["name"] for row in steps][:2] == ["ProfilerStep#2", "ProfilerStep#3"]
    whole, second = (read_table_rows(capsys, STACKED, *more) for more in ((), ("--step", "3")))
    calls = {row["name"]: row["calls"] for row in whole if row["device"] == "CPU"}
    in_second = {row["name"]: row["calls"] for row in second if row["device"] == "CPU"}
    assert calls["aten::mm"] == 2 * in_second["aten::mm"]


def test_the_other_tables(capsys: pytest.CaptureFixture[str]) -> None:
    kernels = read_table_rows(capsys, STACKED, "--of", "kernels")
    assert {"name", "class", "calls", "total_us", "median_us"} <= kernels[0].keys()
    assert read_table_rows(capsys, STACKED, "--of", "copies")[0]["bytes"] > 0
    assert read_table_rows(capsys, STACKED, "--of", "memory")[0]["allocations"] > 0
    assert read_table_rows(capsys, STACKED, "--of", "collectives") == []
    flops = read_table_rows(capsys, STACKED, "--flops", "--sort", "tflops", "--limit", "1")
    assert 0 < flops[0]["peak_share"] < 1
    assert "no collectives were recorded" in run_program("table", STACKED, "--of", "collectives").stdout
    assert "profile_memory=True" in run_program("table", SAMPLE, "--of", "memory").stdout


def test_files_for_other_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", str(SAMPLE), "--csv"]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [line["name"] for line in lines] == [row[0] for row in ORACLE["matmul_add_64_cold_eager"]["rows"]]
    assert main(["table", str(SAMPLE), "--markdown", "--limit", "2"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("| name | on | calls |")
    assert text.count("\n| ") == 3


def test_a_person_reads_a_table() -> None:
    done = run_program("table", SAMPLE, env={**os.environ, "COLUMNS": "60"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    for words in ("self GPU", "ProfilerStep*", "381.9 µs", *ORACLE["matmul_add_64_cold_eager"]["footer"][:1]):
        assert words in done.stdout
    few = run_program("table", STACKED, "--limit", "2").stdout
    assert "and 176 more rows" in few
    assert re.search(r"= 23 : 1, GPU busy [\d.]+ % of the steps: overhead-bound, the CPU dispatches\n", few)
    assert (
        len(few.splitlines()) == 11
    )  # the titles, 2 rows, the annotations' line and 2, the rest, totals, sentence, note


def test_kernels_have_decoded_names(capsys: pytest.CaptureFixture[str]) -> None:
    """Text shows what a kernel is; JSON keeps the recorded name beside it, CSV has that alone."""
    name, display = "nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT", "gemm bf16 64×8"
    for more in ([], ["--of", "kernels"]):
        rows = {row["name"]: row for row in read_table_rows(capsys, SAMPLE, *more)}
        assert rows[name]["display"] == display
        assert main(["table", str(SAMPLE), *more]) == 0
        text = capsys.readouterr().out
        assert display in text
        assert name not in text
        assert main(["table", str(SAMPLE), "--csv", *more]) == 0
        text = capsys.readouterr().out
        assert name in text
        assert display not in text
    rows = {row["name"]: row for row in read_table_rows(capsys, SAMPLE)}
    assert rows["aten::mm"]["display"] == "aten::mm"
    assert rows["ProfilerStep*"]["display"] == "ProfilerStep*"
    assert "display" not in read_table_rows(capsys, STACKED, "--of", "memory")[0]


@pytest.mark.parametrize("columns", keep_some([60, 100, 200], 1))
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    env = {**os.environ, "COLUMNS": str(columns), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    for more in ([], ["--by", "stack"], ["--of", "kernels"], ["--of", "memory"]):
        done = run_program("table", STACKED, "--limit", "5", *more, env=env)
        lines = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).splitlines()
        assert max(map(cell_len, lines)) <= columns
        assert len(lines) <= 20  # 5 rows, 5 of annotations, titles, totals and notes, which wrap


def test_names_cannot_drive_the_terminal(tmp_path: Path) -> None:
    entry: dict[str, Any] = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    path = tmp_path / "evil.json"
    path.write_text(json.dumps([{**entry, "name": "\x1b]0;owned\x07"}, {**entry, "name": "\ud800[red]a|b"}]))
    for form in ([], ["--csv"], ["--markdown"], ["--json"]):
        done = run_program("table", path, *form)
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout
        assert "\x07" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["table"], "TRACE"),
        (["table", "missing.json"], "no such file"),
        (["table", SAMPLE, "--sort", "colour"], "no column 'colour'"),
        (["table", SAMPLE, "--by", "colour"], "--by"),
        (["table", SAMPLE, "--limit", "-1"], "--limit"),
        (["table", SAMPLE, "--limit", "many"], "'many' is not a number of rows"),
        (["table", SAMPLE, "--step", "9"], "no step 9 in this trace (it has 2 to 4)"),
        (["table", SAMPLE, "--step", "two"], "--step"),
        (["table", SAMPLE, "--json", "--csv"], "not allowed with"),
        (["table", SAMPLE, "--by", "shape"], "record_shapes=True"),
        (["table", SAMPLE, "--by", "module"], "with_stack=True"),
        (["table", SAMPLE, "--by", "stack"], "with_stack=True"),
        (["table", SAMPLE, "--of", "kernels", "--by", "shape"], "--by"),
        (["table", SAMPLE, SAMPLE], "not the ranks of one run"),
    ],
    ids=lambda value: " ".join(Path(str(word)).name for word in value) if isinstance(value, list) else "",
)
def test_a_wrong_call_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in read_error_line(capsys, *arguments)


@pytest.mark.long
def test_from_a_pipe_and_without_a_screens_library() -> None:
    with SAMPLE.open("rb") as trace:
        told = json.loads(run_program("table", "-", "--json", stdin=trace).stdout)["rows"]
    assert len(told) == len(ORACLE["matmul_add_64_cold_eager"]["rows"])
    code = (
        "import sys; from torchprof_tui.cli import main; main(['table', sys.argv[1], '--json']); "
        "sys.exit(any(name.partition('.')[0] in ('textual', 'rich', 'torch') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(SAMPLE)], capture_output=True, check=False).returncode == 0


@pytest.mark.long
def test_annotations_follow_the_work() -> None:
    """torch lists `forward` first, at 514 %: a span on the GPU, compared with the time of the work in it."""
    lines = run_program("table", STACKED, "--limit", "0").stdout.splitlines()
    section = lines.index(next(line for line in lines if line.startswith("annotations:")))
    above, below = "\n".join(lines[:section]), "\n".join(lines[section:])
    assert "ProfilerStep*" in below
    assert "ProfilerStep*" not in above
    assert "GPU % = span / GPU total" in below
    shares = [float(share) for share in re.findall(r"([\d.]+) %", above)]
    assert max(shares) <= 100
    markdown = run_program("table", STACKED, "--markdown").stdout
    assert markdown.index("aten::mm") < markdown.index("ProfilerStep")
    assert "annotations contain" in markdown


def test_json_marks_annotations_and_keeps_torchs_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    rows = read_table_rows(capsys, STACKED, "--sort", "cpu")
    assert rows[0]["name"] == "ProfilerStep*"
    assert {row["annotation"] for row in rows if row["name"] == "ProfilerStep*"} == {True}
    assert not any(row["annotation"] for row in rows if row["name"].startswith("aten::"))


def test_a_cpu_only_table_has_no_gpu_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cpu.json"
    path.write_text(json.dumps({"traceEvents": [cpu("aten::add", 0, 20), cpu("aten::mm", 50, 70)]}))
    assert main(["table", str(path)]) == 0
    out = capsys.readouterr().out
    assert "GPU" not in out
    assert "outside ops: 30.0 µs of 120.0 µs (record with --with-stack to see the code)" in out
    assert "| on |" not in run_program("table", path, "--markdown").stdout
    assert out.index("aten::mm") < out.index("aten::add")
    assert main(["table", str(path), "--sort", "self_cuda_time_total"]) == 0
    capsys.readouterr()
    assert "self_gpu_us" in read_table_rows(capsys, str(path))[0]
    assert main(["table", str(SAMPLE)]) == 0
    assert "self GPU" in capsys.readouterr().out
