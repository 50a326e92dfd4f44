"""Test files that are not the whole recording: nothing is called absent because it was lost, and nothing raises."""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.merged_ranks import load_merged_ranks
from tests.helpers.pattern_traces import healthy, waiting
from tests.helpers.rank_traces import late_rank
from tests.helpers.trace_builder import cpu, trace
from torchprof_samples import find
from torchprof_tui.analysis.completeness.data_loss import find_data_loss
from torchprof_tui.analysis.doctor.examination import diagnose_trace
from torchprof_tui.analysis.doctor.read_problems import Section
from torchprof_tui.analysis.patterns.engine.check_scope import range_scope
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS, Checker
from torchprof_tui.analysis.patterns.engine.pattern import Answer, State
from torchprof_tui.analysis.patterns.verdict.rank_checks import MultiRankChecker
from torchprof_tui.analysis.patterns.verdict.verdict import Regime
from torchprof_tui.analysis.slicing.slice_writer import write_slice
from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.core.problems import CUT_SHORT, UNREADABLE_ENTRY, Problem
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.source import Source


def open_content(content: bytes, folder: Path) -> Trace:
    """Decode this content in a folder and build its trace."""
    folder.mkdir(exist_ok=True)
    return build_trace(decode_trace(Source("made", io.BytesIO(content)), folder), "made")


def with_problems(trace_: Trace, *problems: Problem) -> Trace:
    """Add these problems to a trace."""
    trace_.problems.extend(problems)
    return trace_


@pytest.mark.parametrize("rows", [[], [5, 2, 5, 0, 2]])
def test_evidence_is_unique_and_sorted_by_time(rows: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    healthy_trace, answer = trace(*healthy()), Answer.fired("seen", np.array(rows, np.int64))
    monkeypatch.setitem(PATTERNS, "idle-gap", replace(PATTERNS["idle-gap"], check=lambda _: answer))
    (finding,) = Checker(healthy_trace).check(ids=["idle-gap"])
    by_time = sorted(set(rows), key=lambda row: (int(healthy_trace.start[row]), row))
    assert finding.answer.events.tolist() == by_time


def test_what_a_file_lost_is_counted() -> None:
    assert not find_data_loss(trace(*healthy()))
    entries = find_data_loss(with_problems(trace(*healthy()), Problem(UNREADABLE_ENTRY, 1, "")))
    assert (entries.summary, entries.truncation) == ("1 entry lost", "")
    assert entries.share == 1 / len(healthy())
    both = find_data_loss(
        with_problems(trace(*healthy()), Problem(UNREADABLE_ENTRY, 10_575, ""), Problem(CUT_SHORT, 2, ""))
    )
    assert both.reason == "the file is partial (10,575 entries lost, cut short)"
    assert both.share == 1
    assert not find_data_loss(with_problems(trace(*healthy()), Problem("repaired: comma", 3, "")))


def test_a_cut_file_proves_no_idle_gpu() -> None:
    whole = Checker(trace(*waiting()))
    assert whole.decide_verdict().regime is Regime.OVERHEAD
    checker = Checker(with_problems(trace(*waiting()), Problem(CUT_SHORT, 1, "")))
    (finding,) = checker.check(ids=["overhead-bound"])
    assert (finding.state, finding.answer.reason) == (State.CANNOT_TELL, "the file is partial (cut short)")
    assert checker.decide_verdict().regime is Regime.UNKNOWN
    assert checker.decide_verdict().busy == whole.decide_verdict().busy
    assert (
        checker.decide_verdict().first
        == "undetermined: the file is partial (cut short); the numbers are from the readable part of the file"
    )


def test_a_busy_gpu_is_busy_whatever_was_lost() -> None:
    checker = Checker(with_problems(trace(*healthy()), Problem(CUT_SHORT, 1, "")))
    assert checker.decide_verdict().regime is Regime.COMPUTE
    assert checker.decide_verdict().first.endswith(" (from the readable part of the file: cut short)")
    (finding,) = checker.check(ids=["compute-bound"])
    assert finding.has_fired
    assert finding.answer.seen.endswith(" (from the readable part of the file)")


@pytest.mark.parametrize(("steps", "state"), [(4, State.CANNOT_TELL), (40, State.FIRED)])
def test_few_lost_entries_leave_measured_idle_time(steps: int, state: State) -> None:
    """Two of 112 entries are more than a hundredth, two of 1,120 are not."""
    checker = Checker(with_problems(trace(*waiting(steps=steps)), Problem(UNREADABLE_ENTRY, 2, "")))
    (finding,) = checker.check(ids=["overhead-bound"])
    assert finding.state is state
    (absent,) = checker.check(ids=["graph-replay"])
    assert (absent.state, absent.answer.reason) == (State.CANNOT_TELL, "the file is partial (2 entries lost)")


def test_a_cut_file_without_gpu_work_is_not_reported_as_not_recorded(tmp_path: Path) -> None:
    """Kineto writes GPU work last: a file that is cut before the first kernel has all CPU events."""
    entries = sorted(healthy(), key=lambda entry: entry["cat"] == "kernel")
    content = json.dumps({"traceEvents": entries}).encode()
    cut = open_content(content[: content.index(b'{"ph": "X", "cat": "kernel"') + 40], tmp_path / "cut")
    assert len(cut) == sum(entry["cat"] != "kernel" for entry in entries)
    assert Checker(cut).decide_verdict().text == "undetermined: the file is partial (cut short)"
    missing = {remark.kind: remark.action for remark in diagnose_trace(cut).remarks_in(Section.MISSING)}
    assert missing["GPU work"] == "undetermined: the file is partial (cut short)"
    assert missing["shapes"] == "profile(record_shapes=True)"  # decided from the ops in the file
    without_gpu = open_content(
        json.dumps({"traceEvents": [e for e in entries if e["cat"] != "kernel"]}).encode(), tmp_path / "n"
    )
    launches = sum(entry["cat"] == "cuda_runtime" for entry in entries)
    expected = f"{launches} calls that launch or copy, but no GPU work was recorded: CUPTI delivered none "
    assert Checker(without_gpu).decide_verdict().text.startswith(expected)
    missing = {remark.kind: remark.action for remark in diagnose_trace(without_gpu).remarks_in(Section.MISSING)}
    assert missing["GPU work"].startswith("CUPTI recorded no activity")


@pytest.mark.parametrize("tenths", keep_some(range(1, 10), 3))
def test_a_sample_cut_anywhere(tenths: int, tmp_path: Path) -> None:
    content = gzip.decompress(find("train_gpt_stack_memory").path.read_bytes())
    checker = Checker(open_content(content[: len(content) * tenths // 10], tmp_path))
    findings = checker.check()
    assert len(findings) == len(PATTERNS)
    assert not [finding.id for finding in findings if finding.state is State.ABSENT]
    assert not [finding.id for finding in findings if finding.has_fired and finding.pattern.fires_on_absence]
    verdict = checker.decide_verdict(findings=findings)
    assert "partial (cut short)" in verdict.first or verdict.regime is Regime.COMPUTE


def test_a_rank_that_was_cut_has_no_evidence_and_breaks_nothing(tmp_path: Path) -> None:
    paths = late_rank(4, late=2).write(tmp_path)
    content = paths[1].read_bytes()
    paths[1].write_bytes(content[: content.index(b'"cat": "kernel"')])
    merged = load_merged_ranks(paths)
    findings, verdicts = MultiRankChecker(merged).check(MultiRankChecker(merged).default_scope)
    straggler = next(finding for finding in findings if finding.id == "straggler")
    assert straggler.answer.seen.startswith("rank 2 arrives last at 3 of 3 collectives")
    assert merged.merged_ranks is not None
    assert {merged.merged_ranks.rank_of_event(int(row)).number for row in straggler.answer.events} == {0, 2, 3}
    # Ranks arrive 3 µs apart, rank 2 another 3000 µs later: rank 0 waits 3006 µs, rank 3 2997 µs; three ranks arrived.
    assert straggler.answer.at_stake == pytest.approx(3 * (3006 + 0 + 2997) * 1000 / 3)
    assert [verdict.busy is None for verdict in verdicts] == [False, True, False, False]
    assert "partial" in verdicts[1].first


def test_a_slice_is_judged_by_its_own_range(tmp_path: Path) -> None:
    """The GPU never waits half a step, but the rest of the step is empty in the slice: that is not idle time."""
    source = tmp_path / "whole.json"
    source.write_text(json.dumps({"traceEvents": healthy()}))
    whole = load_trace(str(source), cache=False)
    write_slice(whole, 1_100_000, 1_600_000, tmp_path / "part.json")
    part = load_trace(str(tmp_path / "part.json"), cache=False)
    checker = Checker(part)
    shift = whole.origin - part.origin
    assert shift == -1_000_000  # the step that encloses the range begins at 1 ms
    assert (checker.default_scope.t0, checker.default_scope.t1) == (100_000, 600_000)
    expected = Checker(whole).view(range_scope(1_100_000, 1_600_000)).busy_share
    assert checker.decide_verdict().busy == pytest.approx(expected)
    assert checker.decide_verdict().regime is Regime.COMPUTE
    (slice_,) = [remark for remark in diagnose_trace(part).remarks if remark.kind == "slice"]
    assert slice_.meaning == "a slice of whole.json: 1.1 ms to 1.6 ms of the whole"


def test_a_slice_without_gpu_work_does_not_say_that_none_was_recorded(tmp_path: Path) -> None:
    source = tmp_path / "whole.json"
    source.write_text(json.dumps({"traceEvents": [*healthy(), cpu("aten::alone", 9000, 50)]}))
    write_slice(load_trace(str(source), cache=False), 8_990_000, 9_100_000, tmp_path / "part.json")
    part = load_trace(str(tmp_path / "part.json"), cache=False)
    assert Checker(part).decide_verdict().text.startswith("no GPU activity is in this slice; ")
    missing = {remark.kind: remark.action for remark in diagnose_trace(part).remarks_in(Section.MISSING)}
    assert missing["GPU work"] == "undetermined: this is a slice of a longer trace"


def test_a_slice_of_a_partial_file_is_partial(tmp_path: Path) -> None:
    source = tmp_path / "cut.json"
    source.write_text(json.dumps({"traceEvents": healthy()})[:-200])
    write_slice(load_trace(str(source), cache=False), 0, 500_000, tmp_path / "part.json")
    part = load_trace(str(tmp_path / "part.json"), cache=False)
    assert part.problems == []
    assert find_data_loss(part).summary == "cut short"
    assert [remark.kind for remark in diagnose_trace(part).remarks_in(Section.LOST)] == [CUT_SHORT]


@pytest.mark.parametrize(
    "slice_header",
    [None, [], {"range_ns": [5]}, {"range_ns": [5, 5]}, {"range_ns": ["a", 9]}, {"range_ns": [0, 2**63]}, {}],
)
def test_invalid_slice_metadata_is_ignored(slice_header: object) -> None:
    marked = trace(*healthy(), header={"torchprof_tui_slice": slice_header})
    assert Checker(marked).default_scope.is_whole_trace
    assert not find_data_loss(marked)


def test_a_slice_of_an_older_version_is_checked_whole() -> None:
    old_slice = trace(
        *healthy(), header={"torchprof_tui_slice": {"range_ns": [1_000_000, 2_000_000], "entries_of": 99}}
    )
    assert Checker(old_slice).default_scope.is_whole_trace
    (slice_,) = [remark for remark in diagnose_trace(old_slice).remarks if remark.kind == "slice"]
    assert slice_.meaning == "a slice of another trace: 1 ms to 2 ms of the whole"


def test_invalid_losses_in_slice_metadata_are_ignored() -> None:
    listed = [7, {"kind": CUT_SHORT}, {"kind": CUT_SHORT, "count": 1, "example": "x\x1b[2J"}]
    marked = trace(*healthy(), header={"torchprof_tui_slice": {"range_ns": [0, 9], "partial": listed}})
    assert find_data_loss(marked).summary == "cut short"
    (remark,) = diagnose_trace(marked).remarks_in(Section.LOST)
    assert "\x1b" not in remark.example
