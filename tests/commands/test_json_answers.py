"""Every `--json` answer is of its schema, on samples, shared traces and made ones; totals and `cannot_tell` agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.helpers.command_line import call_main, read_error_line, run_program
from tests.helpers.json_schemas import check_answer
from tests.helpers.long_run import keep_some
from tests.helpers.paths import SHARED_TRACES
from tests.helpers.rank_traces import late_rank
from tests.helpers.trace_builder import Entry, cpu, kernel, memcpy, memory, runtime, step
from tools.answer_schemas import list_answers
from torchprof_samples import SAMPLES, find
from torchprof_tui.analysis.table.table_sheet import format_torch_time
from torchprof_tui.answers.table import Grouping
from torchprof_tui.commands.table import TableOptions

TABLES = {
    "calls": "Table",
    "kernels": "KernelTable",
    "copies": "CopyTable",
    "collectives": "CollectiveTable",
    "memory": "MemoryTable",
    "arrivals": "ArrivalTable",
    "repetitions": "RepetitionTable",
}

SHARED = (
    "ddp_4ranks",
    "graphs/sglang_decode",
    "public/AMD-AGI+TraceLens/gpu_only_trace.json.gz",
    "public/AMD-AGI+TraceLens/sglang_Qwen3-8B_decode.json.gz",
    "public/catapult-project+catapult/nestable_async.json",
    "public/catapult-project+catapult/trivial_trace.json",
    "public/catapult-project+catapult/x_event_trace.json.gz",
    "public/facebookresearch+param/resnet_kineto.json.gz",
    "public/facebookresearch+param/worker0_step_12.1694128201545.pt.trace.json.gz",
    "public/google+perfetto/flow_events_json_v2.json",
    "public/xiaobingling93-pixel+Ascend-mstt/trace_view.json.gz",
)
"""Ranks, graphs; recordings without steps, without a CPU, of other accelerators and other programs."""

STACKED = find("train_gpt_stack_memory").path
RANKS = find("train_gpt_2ranks").path

Answers = dict[str, Any]


def ask(capsys: pytest.CaptureFixture[str], definition: str, command: str, *arguments: object) -> Any:
    """Ask for JSON and check it against its schema; None where the call is refused, with nothing on stdout."""
    status, out, err = call_main(capsys, command, *arguments, "--json")
    if status == 2:
        assert out == ""
        assert err.splitlines()[-1].startswith("torchprof-tui: ")
        return None
    answer = json.loads(out)
    check_answer(answer, command, definition)
    return answer


def ask_everything(capsys: pytest.CaptureFixture[str], path: Path) -> Answers:
    """Ask every command about a trace; return the answers by command, for tables by what they are of."""
    answers = {
        "info": ask(capsys, "Info", "info", path),
        "check": ask(capsys, "Check", "check", path, "--fail-on", "straggler"),
        **{of: ask(capsys, TABLES[of], "table", path, "--of", of) for of in TABLES},
    }
    for grouping in TableOptions.arguments["by"].choices or ():
        ask(capsys, "Table", "table", path, "--by", grouping, "--flops")
    for table in ("calls", "kernels", "copies"):
        for row in (answers[table] or {"rows": []})["rows"][:3]:
            ask(capsys, "Chain", "chain", path, "--event", row["name"])
    return answers


def write(path: Path, *entries: Entry) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": entries}))
    return path


@pytest.mark.parametrize("sample", keep_some(SAMPLES, 2), ids=lambda sample: str(sample.name))
def test_every_answer_about_a_sample_is_of_its_schema(sample: Any, capsys: pytest.CaptureFixture[str]) -> None:
    answers = ask_everything(capsys, sample.path)
    assert not [name for name, answer in answers.items() if answer is None and name != "arrivals"]
    assert (answers["arrivals"] is not None) == sample.path.is_dir()


@pytest.mark.long
@pytest.mark.parametrize("name", keep_some(reversed(SHARED), 1))
def test_every_answer_about_a_shared_trace_is_of_its_schema(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = SHARED_TRACES / name
    if not path.exists():
        pytest.skip(f"no {name}")
    answers = ask_everything(capsys, path)
    assert answers["info"] is not None
    assert answers["check"] is not None


@pytest.mark.parametrize("by", keep_some(["op", "module", "kernel", "class", "cause"], 2))
def test_a_comparison_is_of_its_schema(by: str, capsys: pytest.CaptureFixture[str]) -> None:
    sides = [find(name).path for name in ("geglu_mlp_eager", "geglu_mlp_compile")]
    answer = ask(capsys, "Diff", "diff", *sides, "--by", by)
    assert ("rows" in answer) == (by in ("class", "cause"))
    assert ask(capsys, "Diff", "diff", RANKS, RANKS)["same_recording"] is True


def test_the_groupings_of_the_schema_are_those_of_the_command() -> None:
    assert get_args(Grouping) == TableOptions.arguments["by"].choices


def test_a_comparison_without_noise_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = [step(0, 0, 100), cpu("aten::mm", 10, 30), step(1, 100, 100), cpu("aten::mm", 110, 30)]
    one, other = write(tmp_path / "a.json", *entries[:2]), write(tmp_path / "b.json", *entries)
    told = ask(capsys, "Diff", "diff", one, other)["step_us"]
    assert told["noise"] is None
    assert told["cannot_tell"] == "one step: its spread over steps is not known"


def test_the_other_answers_are_of_their_schemas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = ask(capsys, "PatternList", "check", "--list")
    assert "idle-gap" in {pattern["id"] for pattern in listed["patterns"]}
    out = tmp_path / "small.json"
    sliced = ask(capsys, "Slice", "slice", STACKED, "--range", "0ms:1ms", "-o", out)
    assert (sliced["trace"], sliced["bytes"]) == (str(out), out.stat().st_size)
    ask(capsys, "Info", "info", out)
    assert ask(capsys, "CaseListing", "learn", "--list")["problems"] == []
    assert ask(capsys, "LearnCase", "learn", "wide-step")["questions"][0]["number"] > 1
    cached = ask(capsys, "CacheUse", "cache")
    assert cached["traces"] > 0
    assert "removed" not in cached


def test_an_emptied_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(tmp_path))
    assert run_program("info", STACKED).returncode == 0  # what this process has open would be kept
    emptied = ask(capsys, "CacheUse", "cache", "--clear")
    assert (emptied["removed"], emptied["traces"], emptied["bytes"]) == (1, 0, 0)
    assert emptied["freed_bytes"] > 0


@pytest.mark.parametrize("words", [(), ("--step", "3"), ("--limit", "1")])
@pytest.mark.parametrize("of", keep_some(["kernels", "copies", "memory"], 4))
def test_totals_are_the_sums_of_all_rows(of: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, TABLES[of], "table", STACKED, "--of", of, *words)
    scope = words if "--step" in words else ()
    rows = ask(capsys, TABLES[of], "table", STACKED, "--of", of, *scope)["rows"]
    assert answer["row_count"] == len(rows)
    assert answer["step"] == (3 if "--step" in words else None)
    summed = answer["totals"].keys() & rows[0].keys()
    assert len(summed) >= 2
    for key in summed:
        assert answer["totals"][key] == pytest.approx(sum(row[key] or 0 for row in rows)), key


@pytest.mark.parametrize("name", ["train_gpt_stack_memory", "train_images_cpu", "train_gpt_2ranks"])
def test_totals_are_those_below_the_printed_table(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = find(name).path
    totals = ask(capsys, "Table", "table", path)["totals"]
    _, out, _ = call_main(capsys, "table", path, "--limit", "1")
    for note in totals["notes"]:
        assert note in out or note.endswith(": 0.000us")  # a table without GPU work has no such line
    assert f"Self CPU time total: {format_torch_time(1000 * totals['self_cpu_us'])}" in totals["notes"]
    assert f"Self GPU time total: {format_torch_time(1000 * totals['self_gpu_us'])}" in totals["notes"]
    assert ("outside_ops_us" in totals) == any(note.startswith("outside ops") for note in totals["notes"])


def test_calls_without_a_gpu_have_the_time_outside_ops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "cpu.json", cpu("aten::add", 0, 20), cpu("aten::mm", 50, 70))
    totals = ask(capsys, "Table", "table", path)["totals"]
    assert (totals["self_cpu_us"], totals["self_gpu_us"]) == (90, 0)
    assert (totals["outside_ops_us"], totals["outside_ops_of_us"]) == (30, 120)


def test_arrival_totals_are_those_of_the_printed_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    late_rank().write(tmp_path)
    answer = ask(capsys, "ArrivalTable", "table", tmp_path, "--of", "arrivals")
    totals, rows = answer["totals"], answer["rows"]
    assert [(rank["rank"], rank["collectives"], rank["last"]) for rank in totals["ranks"]] == [
        (rank, len(rows), sum(row["last_rank"] == rank for row in rows)) for rank in range(3)
    ]
    assert sum(rank["waited_us"] for rank in totals["ranks"]) == pytest.approx(sum(row["waited_us"] for row in rows))
    assert (totals["unmatched"], totals["incomplete"], totals["mismatched"]) == (0, 0, 0)
    _, out, _ = call_main(capsys, "table", tmp_path, "--of", "arrivals")
    assert all(note in out for note in totals["notes"])


def test_a_table_of_one_of_several_ranks_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    late_rank().write(tmp_path)
    assert ask(capsys, "Table", "table", tmp_path)["rank"] == 0
    assert ask(capsys, "KernelTable", "table", tmp_path, "--of", "kernels", "--rank", "2")["rank"] == 2
    assert "rank" not in ask(capsys, "ArrivalTable", "table", tmp_path, "--of", "arrivals")


def test_what_was_not_recorded_is_told_from_what_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cpu_only = write(tmp_path / "cpu.json", step(0, 0, 100), cpu("aten::mm", 10, 30))
    for of in ("kernels", "copies", "collectives"):
        answer = ask(capsys, TABLES[of], "table", cpu_only, "--of", of)
        assert (answer["rows"], answer["row_count"]) == ([], 0)
        assert answer["cannot_tell"].startswith("no GPU work was recorded")
    assert "profile_memory=True" in ask(capsys, "MemoryTable", "table", cpu_only, "--of", "memory")["cannot_tell"]
    with_gpu = write(
        tmp_path / "gpu.json",
        step(0, 0, 100),
        cpu("aten::mm", 10, 30),
        runtime("cudaLaunchKernel", 12, 5, corr=1),
        kernel("k", 20, 5, corr=1),
        memory(15, 64, 64),
    )
    for of in ("calls", "kernels", "copies", "collectives", "memory"):
        answer = ask(capsys, TABLES[of], "table", with_gpu, "--of", of)
        assert "cannot_tell" not in answer
        assert bool(answer["rows"]) == (of in ("calls", "kernels", "memory"))
    empty = write(tmp_path / "none.json", step(0, 0, 100), memcpy("Memcpy HtoD", 10, 5))
    assert "cannot_tell" not in ask(capsys, "KernelTable", "table", empty, "--of", "kernels")


def test_a_chain_without_a_launch_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lost = write(tmp_path / "lost.json", cpu("aten::mm", 10, 30), kernel("k", 20, 5, corr=7))
    told = ask(capsys, "Chain", "chain", lost, "--event", "k")
    assert told["cannot_tell"].startswith("No launch was recorded")
    assert (told["launch_latency_ns"], told["footprint"]["grid"]) == (None, None)
    cpu_only = write(tmp_path / "cpu.json", cpu("aten::mm", 10, 30))
    told = ask(capsys, "Chain", "chain", cpu_only, "--event", "aten::mm")
    assert told["cannot_tell"] == "no GPU work was recorded in this trace"
    assert told["gpu_work"] == {"count": 0, "total_ns": 0, "heaviest": []}
    linked = write(
        tmp_path / "gpu.json",
        cpu("aten::mm", 10, 30),
        runtime("cudaLaunchKernel", 12, 5, corr=1),
        kernel("k", 20, 5, corr=1),
        cpu("aten::view", 50, 5),
    )
    for name in ("aten::mm", "aten::view"):  # it launched nothing: an answer, as others did
        assert "cannot_tell" not in ask(capsys, "Chain", "chain", linked, "--event", name)


def test_an_unknown_time_and_an_unknown_regime_say_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "x.json", {"ph": "X", "name": "work", "pid": 1, "tid": 1, "ts": 0, "dur": 5})
    told = ask(capsys, "Info", "info", path)
    assert (told["time"], told["cannot_tell"]) == ([], "no GPU activity was recorded")
    assert "cannot_tell" not in ask(capsys, "Info", "info", STACKED)
    checked = ask(capsys, "Check", "check", path)
    assert checked["verdict"]["regime"] == "unknown"
    assert checked["verdict"]["cannot_tell"] == checked["verdict"]["first"]
    for pattern in checked["patterns"]:
        assert ("cannot_tell" in pattern) == (pattern["state"] == "cannot_tell")
        assert pattern.get("cannot_tell", "") == pattern["reason"]


def test_patterns_of_fail_on_that_cannot_be_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "cpu.json", step(0, 0, 100), cpu("aten::mm", 10, 30))
    told = ask(capsys, "Check", "check", path, "--fail-on", "idle-gap")
    assert (told["failed_on"], told["undetermined"]) == ([], ["idle-gap"])
    assert "undetermined" not in ask(capsys, "Check", "check", path)


def test_columns_of_bytes_are_named_so_and_sort_by_either_name(capsys: pytest.CaptureFixture[str]) -> None:
    orders = []
    for column in ("held", "held_bytes"):
        rows = ask(capsys, "MemoryTable", "table", STACKED, "--of", "memory", "--sort", column)["rows"]
        orders.append([row["name"] for row in rows])
        assert [row["held_bytes"] for row in rows] == sorted((row["held_bytes"] for row in rows), reverse=True)
        assert all(isinstance(row["held_bytes"], int) for row in rows)
    assert orders[0] == orders[1]


@pytest.mark.parametrize("command", keep_some([name for name in list_answers() if name not in ("run", "cache")], 3))
def test_a_refused_call_leaves_stdout_empty(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more: dict[str, list[object]] = {
        "chain": ["--event", "x"],
        "diff": [tmp_path / "other.json"],
        "slice": ["--range", "0ms:1ms", "-o", tmp_path / "out.json"],
        "export": ["-o", tmp_path / "out.csv"],
    }
    assert "gone.json" in read_error_line(capsys, command, tmp_path / "gone.json", *more.get(command, []), "--json")
    (tmp_path / "gone.json").write_text("no trace")
    read_error_line(capsys, command, tmp_path / "gone.json", *more.get(command, []), "--json")
