"""`check`: what scripts and CI get, and what a person reads."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import torchprof_tui as tt
from tests.helpers.command_line import call_main, read_error_line, read_json_answer
from tests.helpers.long_run import keep_some
from tests.helpers.pattern_traces import healthy, op_with_work, waiting
from tests.helpers.trace_builder import annotation, cpu, step, trace
from torchprof_tui.analysis.collectives.communication_waiting import compute_arrivals
from torchprof_tui.analysis.dispatch.frame_names import SourceLine
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS, Checker
from torchprof_tui.analysis.patterns.engine.pattern import Section
from torchprof_tui.analysis.patterns.verdict.check_report import CheckReport
from torchprof_tui.analysis.patterns.verdict.costs import find_base
from torchprof_tui.analysis.patterns.verdict.latest_check import LatestOnlyChecker
from torchprof_tui.answers.check import build_check
from torchprof_tui.cli import main
from torchprof_tui.commands.check.markdown import format_report
from torchprof_tui.commands.check.text import print_report

SLOW = "sample:matmul_add_64_cold_eager"
CONTRACT = {
    "id", "section", "state", "title", "meaning", "action", "reason", "at_stake_us", "share", "evidence",
}  # fmt: skip


def rarely_uneven(steps: int = 200) -> list[dict[str, Any]]:
    """Build steps of 1 ms whose kernel runs throughout; the first step takes 1.6 ms."""
    entries: list[dict[str, Any]] = []
    start = 0.0
    for number in range(steps):
        length = 1600.0 if number == 0 else 1000.0
        entries += [step(number, start, length), *op_with_work("aten::mm", start + 1, start + 12, length - 14)]
        start += length
    return entries


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(entries: list[dict[str, Any]]) -> str:
        path = tmp_path / "made.json"
        path.write_text(json.dumps({"traceEvents": entries}))
        return str(path)

    return write


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["check", *words, "--json", "--no-cache"]) == 0
    out = capsys.readouterr().out
    answer: dict[str, Any] = json.loads(out)
    return answer


def test_json_as_the_contract_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(capsys, SLOW)
    patterns = answer["patterns"]
    assert sorted(one["id"] for one in (*patterns, *answer["notes"])) == sorted(PATTERNS)
    assert {one["severity"] for one in answer["notes"]} == {"notice"}
    assert "notice" not in {one["severity"] for one in patterns}
    assert all(CONTRACT.issubset(one) for one in patterns)
    assert {one["state"] for one in patterns} == {"fired", "absent", "cannot_tell"}
    first = patterns[0]
    assert first["id"] == "overhead-bound"
    assert 0 < first["share"] <= 1
    cold = next(one for one in patterns if one["id"] == "first-step-wide")
    (event,) = cold["evidence"]
    assert {key: event[key] for key in ("name", "start_ns", "duration_ns")} == {
        "name": "ProfilerStep#2",
        "start_ns": 0,
        "duration_ns": 216_855,
    }
    assert event["lane"].startswith("CPU 564")
    # At most what the first step takes longer, and only what no other problem explains of it.
    assert cold["at_stake_us"] <= 216.855 - (88.224 + 76.818) / 2 + 0.001
    assert first["leading"]
    assert answer["base"]["label"] == "all 3 steps"
    assert answer["verdict"]["regime"] == "overhead-bound"
    worst = [one["at_stake_us"] for one in patterns if one["state"] == "fired" and one["severity"] == "problem"]
    assert worst == sorted(worst, reverse=True)


def test_a_range_that_ends_long_after_the_trace(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    far = "99999999999999999999"
    assert asked(capsys, SLOW, "--range", f"0:{far}")["scope"]["start_ns"] == 0
    assert main(["slice", SLOW, "--range", f"0:{far}", "-o", str(tmp_path / "all.json")]) == 0


def test_a_range(capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(capsys, SLOW, "--range", "170us:0.26ms")
    assert answer["scope"] == {"label": "range", "start_ns": 170_000, "duration_ns": 90_000}
    for one in answer["patterns"]:
        for event in one["evidence"]:
            assert event["start_ns"] < 260_000
            assert event["start_ns"] + event["duration_ns"] > 170_000


@pytest.mark.parametrize(
    ("entries", "fail_on", "status"),
    keep_some(
        [
            (waiting(), "overhead-bound", 1),
            (waiting(), "compute-bound,overhead-bound", 1),
            (waiting(), "compute-bound", 0),
            (waiting(), "fired", 1),
            (healthy(), "fired", 0),  # it computes, and has a chain: worth knowing, nothing to fail on
            (healthy(), "compute-bound", 1),  # a check of this pattern alone reports it
            (waiting(), "memory-growth", 3),  # no memory was recorded
            (waiting(), "memory-growth,compute-bound", 3),
            (waiting(), "memory-growth,overhead-bound", 1),  # found is found
            (waiting()[:1], "fired", 3),  # nothing can be looked for
        ],
        3,
    ),
)
def test_exit_status_for_ci(written: Any, entries: list[dict[str, Any]], fail_on: str, status: int) -> None:
    assert main(["check", written(entries), "--fail-on", fail_on, "--no-cache"]) == status
    allowed = main(["check", written(entries), "--fail-on", fail_on, "--no-cache", "--undecided", "pass"])
    assert allowed == (0 if status == 3 else status)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--fail-on", "hiden-copy"], "did you mean hidden-copy?"),
        (["--fail-on", ","], "needs a pattern's name"),
        (["--range", "5"], "expected T0:T1"),
        (["--range", "9:5"], "the end is before the start"),
        (["--range", "a:5"], "--range a:5"),
        (["--list"], "--list lists all patterns: it takes no TRACE"),
        (["--json", "--markdown"], "--json and --markdown cannot be given together"),
        (["--problems", "--markdown"], "--problems and --markdown cannot be given together"),
    ],
)
def test_a_wrong_call_is_one_line(capsys: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    assert main(["check", SLOW, *words]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("torchprof-tui: ")
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "no TRACE given"),
        (["--list", "--problems"], "--list and --problems cannot be given together"),
        (["--list", "--fail-on", "fired"], "--list and --fail-on cannot be given together"),
    ],
)
def test_a_call_without_a_trace_is_wrong_unless_it_lists(
    capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    assert says in read_error_line(capsys, "check", *words)


def test_the_list_names_every_pattern(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call_main(capsys, "check", "--list")
    listed = [line.split()[0] for line in out.splitlines() if line.startswith("  ")]
    assert listed == list(PATTERNS)
    assert {line for line in out.splitlines() if not line.startswith(" ")} == {section.value for section in Section}
    answer = read_json_answer(capsys, "check", "--list", "--json")
    assert answer["schema"] == "torchprof-tui/check/3"
    assert [one["id"] for one in answer["patterns"]] == list(PATTERNS)
    assert all(one["decided"] and one["meaning"] and one["action"] for one in answer["patterns"])


@pytest.mark.parametrize(
    "sample", keep_some(["train_gpt_starved", "multi_stream_overlap", "cuda_graph_replay", "linear_eager"], 2)
)
@pytest.mark.parametrize("words", [(), ("--range", "100us:300us")])
def test_the_causes_sum_to_the_scope(capsys: pytest.CaptureFixture[str], sample: str, words: tuple[str, ...]) -> None:
    answer = asked(capsys, f"sample:{sample}", *words)
    assert answer["schema"] == "torchprof-tui/check/3"
    verdict = answer["verdict"]
    causes = verdict["causes"]
    assert causes
    assert sum(cause["us"] for cause in causes) == pytest.approx(answer["scope"]["duration_ns"] / 1000)
    assert sum(cause["share"] for cause in causes) == pytest.approx(1, abs=1e-4)
    for cause in causes:
        assert sum(inner["us"] for inner in cause["contains"]) <= cause["us"] + 1e-6
        for inner in cause["contains"]:
            assert sum(name in inner for name in ("pattern", "class", "op")) == 1
    assert verdict["representative"] is ("recording_fault" not in verdict)
    assert verdict["line"] is None
    assert verdict["cause"] in {cause["cause"] for cause in causes}
    assert verdict["what"] in verdict["first"]
    assert verdict["first"].endswith(verdict["action"])


def test_the_causes_of_a_trace_without_a_gpu_sum_as_well(capsys: pytest.CaptureFixture[str], written: Any) -> None:
    answer = asked(capsys, written([step(0, 0, 100), cpu("aten::mm", 10, 30), cpu("aten::add", 50, 20)]))
    causes = {cause["cause"]: cause for cause in answer["verdict"]["causes"]}
    assert {cause: found["us"] for cause, found in causes.items()} == {"ops": 50, "host_code": 50}
    assert [inner["op"] for inner in causes["ops"]["contains"]] == ["aten::mm", "aten::add"]


def test_the_text_begins_with_what_matters(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call_main(capsys, "check", SLOW)
    lines = out.splitlines()
    assert lines[1].startswith("overhead-bound · GPU busy 2.4 % of the steps · ")
    sections = ("largest gaps of the GPU", "problems", "also found", "notes", "undetermined")
    headings = [line.partition(" (")[0] for line in lines if line.partition(" (")[0] in sections]
    assert headings == ["largest gaps of the GPU", "problems", "also found", "undetermined"]
    assert lines.index("") < next(k for k, line in enumerate(lines) if line.startswith("time of the trace: "))
    time = lines[lines.index("") + 2 : lines.index("largest gaps of the GPU") - 1]
    assert 3 <= len(time) <= 12
    shares = [float(line.split()[0]) for line in time if line[7] == "%"]  # inner lines are indented further
    assert sum(shares) == pytest.approx(100, abs=1.5)
    states = [one["state"] for one in asked(capsys, SLOW)["patterns"]]
    counts = [states.count(state) for state in ("fired", "absent", "cannot_tell")]
    assert lines[-1].startswith("{} found · {} not present · {} undetermined · ".format(*counts))


def test_patterns_that_need_a_gpu_are_one_line(capsys: pytest.CaptureFixture[str], written: Any) -> None:
    path = written([step(0, 0, 100), cpu("aten::mm", 10, 30), cpu("aten::add", 50, 20)])
    _, out, _ = call_main(capsys, "check", path)
    lines = [line for line in out.splitlines() if line.startswith("? ")]
    needs_gpu = [line for line in lines if "GPU activity" in line]
    assert len(needs_gpu) == 1
    assert re.fullmatch(r"\? \d\d patterns need GPU activity", needs_gpu[0])
    assert "overhead-bound" not in out
    assert "overhead-bound" in call_main(capsys, "check", path, "--json")[1]
    assert out.splitlines()[1].startswith("CPU-only trace: ")


def test_an_event_without_a_file_is_no_line_of_code(capsys: pytest.CaptureFixture[str], written: Any) -> None:
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    steps = [entry for k in (0, 1000) for entry in (step(k, k, 1000), annotation(loader, k + 5, 700))]
    path = written([*steps, cpu("aten::mm", 800, 150), cpu("aten::mm", 1800, 150)])
    _, out, _ = call_main(capsys, "check", path)
    assert f"  event: {loader}" in out.splitlines()
    _, report, _ = call_main(capsys, "check", path, "--markdown")
    assert "Event: enumerate(DataLoader)" in report
    assert "Code: " not in report


def test_the_line_of_code_is_in_every_output(capsys: pytest.CaptureFixture[str]) -> None:
    checked = trace(*waiting())
    checker = Checker(checked)
    scope, findings = checker.default_scope, checker.check()
    line = SourceLine("frame", "train.py", 42, "forward", "train.py(42): forward\x1b")
    verdict = replace(checker.decide_verdict(scope, findings), line=line)
    report = CheckReport(checked, scope, findings, [verdict], find_base(checker.view(scope)))
    assert build_check(report).verdict.line == "train.py:42"
    assert "Code: train.py(42): forward·" in format_report(report, ["x.json"], None)
    print_report(report)
    assert "  train.py(42): forward·" in capsys.readouterr().out.splitlines()


def test_notes_are_neither_printed_nor_counted(capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(capsys, SLOW)
    fired = [one["id"] for one in answer["notes"] if one["state"] == "fired"]
    assert fired
    _, out, _ = call_main(capsys, "check", SLOW)
    _, with_notes, _ = call_main(capsys, "check", SLOW, "--notes")
    shown = with_notes[with_notes.index("\nnotes\n") :]
    assert all(f"○ {name} " in shown and f"○ {name} " not in out for name in fired)
    states = [one["state"] for one in answer["patterns"]]
    counts = f"{states.count('fired')} found · {states.count('absent')} not present"
    counts += f" · {states.count('cannot_tell')} undetermined"
    assert out.splitlines()[-1] == f"{counts} · {len(fired)} to read it by (--notes)"
    assert with_notes.splitlines()[-1] == counts
    assert "JSON always has the notes" in read_error_line(capsys, "check", SLOW, "--notes", "--json")


def test_only_the_problems_if_asked(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call_main(capsys, "check", SLOW, "--problems")
    assert "overhead-bound · GPU busy 2.4 %" in out
    assert "● overhead-bound" in out
    assert "first-step-wide" not in out  # a part of the same wait
    assert "○" not in out
    assert "notes" not in out
    assert "time of the trace" not in out


@pytest.mark.long
def test_a_problem_that_costs_next_to_nothing_is_a_note(capsys: pytest.CaptureFixture[str], written: Any) -> None:
    """One step of fifty is 1.6 times as long as the others: 0.1 % of the time."""
    path = written(rarely_uneven())
    answer = asked(capsys, path)
    found = next(one for one in answer["patterns"] if one["id"] == "first-step-wide")
    assert (found["state"], found["severity"], found["significant"]) == ("fired", "problem", False)
    assert 0 < found["share"] < 0.005
    _, out, _ = call_main(capsys, "check", path)
    assert "○ first-step-wide" in out[out.index("\nalso found\n") :]
    assert "● first-step-wide" not in out
    status, out, _ = call_main(capsys, "check", path, "--problems", "--fail-on", "fired")
    assert status == 1
    assert "first-step-wide" not in out


def test_text_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", SLOW, "--no-cache"]) == 0
    out = capsys.readouterr().out
    assert "overhead-bound · GPU busy 2.4 %" in out
    assert "step #2 took 216.9 µs, 2.6× as long as the other 2: 88.2 µs and 76.8 µs" in out
    assert "  do: give the GPU more to do than 3.67 µs in a step of 151.2 µs: larger inputs, or many such" in out
    assert "one rank only" in out
    assert "\x1b" not in out
    assert not any(line != line.rstrip() for line in out.splitlines())


def test_few_long_kernels_are_not_told_to_take_larger_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    out = call_main(capsys, "check", "sample:matmul_add_4096_warm_eager", "--no-cache")[1]
    assert "record more steps (active=20), in which the CPU gets ahead" in out
    assert "(108.8 µs on average) hide their launches" in out
    assert "larger inputs" not in out


def test_names_from_a_trace_are_data(capsys: pytest.CaptureFixture[str], written: Any) -> None:
    entries = json.loads(json.dumps(waiting()).replace("aten::add", "aten::[red]\\u001b[31mx"))
    assert main(["check", written(entries), "--no-cache"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_partial_file_is_told_and_never_fine_silently(
    capsys: pytest.CaptureFixture[str], written: Any, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.json"
    cut.write_text(Path(written(healthy())).read_text()[:-150])
    assert main(["check", str(cut), "--json", "--no-cache", "--fail-on", "graph-replay"]) == 3
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        f"torchprof-tui: {cut} is partial: cut short; see `info`",
        "torchprof-tui: --fail-on: undetermined: graph-replay: the file is partial (cut short)",
        "torchprof-tui: --fail-on cannot be decided: exit status 3; to allow it: --undecided pass",
    ]
    (lost,) = json.loads(out)["partial"]
    assert (lost["kind"], lost["count"]) == ("cut short", 1)
    assert lost["example"].startswith("the file ends inside the entry")
    assert main(["check", str(cut), "--no-cache", "--fail-on", "compute-bound"]) == 1
    out, err = capsys.readouterr()
    assert "(from the readable part of the file: cut short)" in out.splitlines()[1]
    assert "--fail-on" not in err


def test_a_whole_file_has_nothing_partial(capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, SLOW)["partial"] == []
    assert main(["check", SLOW, "--fail-on", "graph-replay"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "problems (shares of all 3 steps: " in out
    assert "● overhead-bound           up to " in out
    assert "\n  why: " in out
    assert "\n  do: " in out


def test_a_slice_is_checked_in_its_range_unless_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    part = tmp_path / "part.json"
    assert main(["slice", SLOW, "--range", "170us:0.26ms", "-o", str(part)]) == 0
    capsys.readouterr()
    answer, whole = asked(capsys, str(part)), asked(capsys, SLOW, "--range", "170us:0.26ms")
    assert answer["scope"]["label"] == "range of the slice"
    assert answer["scope"]["duration_ns"] == 90_000
    assert answer["verdict"]["gpu_busy"] == pytest.approx(whole["verdict"]["gpu_busy"])
    assert asked(capsys, str(part), "--range", "0:20us")["scope"]["duration_ns"] == 20_000


def test_json_lists_what_fail_on_found(capsys: pytest.CaptureFixture[str], written: Any) -> None:
    path = written(waiting())
    for fail_on, failed in (("compute-bound,overhead-bound", ["overhead-bound"]), ("compute-bound", [])):
        assert main(["check", path, "--json", "--fail-on", fail_on, "--no-cache"]) == bool(failed)
        assert json.loads(capsys.readouterr().out)["failed_on"] == failed
    assert "failed_on" not in asked(capsys, path)


@pytest.mark.long
def test_costs_of_a_run_are_those_of_each_rank_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """The ranks' steps differ without the profiler's time: the screen, of one rank, shows the same numbers."""
    ranks = tt.open("sample:train_gpt_2ranks")._model.merged_ranks
    assert ranks is not None
    late = LatestOnlyChecker(ranks.all[0].trace, compute_arrivals(ranks), 0).precompute().result
    straggler = next(each for each in late.findings if each.id == "straggler")
    answer = read_json_answer(capsys, "check", "sample:train_gpt_2ranks", "--json")
    told = next(each for each in answer["patterns"] if each["id"] == "straggler")
    assert told["at_stake_us"] == late.base.price(straggler) / 1000
    assert told["share"] == pytest.approx(straggler.share, abs=1e-6)
    assert answer["base"]["duration_ns"] > late.base.unit
    _, out, _ = call_main(capsys, "check", "sample:train_gpt_2ranks")
    assert "problems (shares of a step of its rank: 11.9 ms to 12.9 ms, the mean of 2)" in out
