"""Files that are not all that was recorded: what was lost is never called absent, and nothing ends in a traceback."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.merged_ranks import merged
from tests.helpers.pattern_traces import healthy, waiting
from tests.helpers.rank_traces import late_rank
from tests.helpers.trace_builder import cpu, trace
from torchprof_samples import find
from torchprof_tui.analysis.data_loss import find_data_loss
from torchprof_tui.analysis.doctor.examination import diagnose_trace
from torchprof_tui.analysis.doctor.remark import Section
from torchprof_tui.analysis.patterns import State
from torchprof_tui.analysis.patterns.engine import check_scope as scopes
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS, Checker, _sort_by_time
from torchprof_tui.analysis.patterns.engine.multi_rank_check import MultiRankChecker
from torchprof_tui.analysis.patterns.engine.verdict import Regime
from torchprof_tui.analysis.slicing.slice_writer import write_slice
from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.core.problems import CUT_SHORT, UNREADABLE_ENTRY, Problem
from torchprof_tui.trace.decode.decoder import decode_trace
from torchprof_tui.trace.loading.load import load_trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.source import Source


def opened(text: bytes, folder: Path) -> Trace:
    folder.mkdir(exist_ok=True)
    return build_trace(decode_trace(Source("made", io.BytesIO(text)), folder), "made")


def lost(made: Trace, *found: Problem) -> Trace:
    made.problems.extend(found)
    return made


def test_events_once_each_by_time_and_none_of_none() -> None:
    made = trace(*healthy())
    empty = np.empty(0, np.int64)
    assert _sort_by_time(made, empty).tolist() == []
    rows = np.array([5, 2, 5, 0, 2])
    assert _sort_by_time(made, rows).tolist() == sorted({5, 2, 0}, key=lambda row: (int(made.start[row]), row))


def test_what_a_file_lost_is_counted() -> None:
    assert not find_data_loss(trace(*healthy()))
    entries = find_data_loss(lost(trace(*healthy()), Problem(UNREADABLE_ENTRY, 1, "")))
    assert (entries.summary, entries.truncation) == ("1 entry lost", "")
    assert entries.share == 1 / len(healthy())
    both = find_data_loss(lost(trace(*healthy()), Problem(UNREADABLE_ENTRY, 10_575, ""), Problem(CUT_SHORT, 2, "")))
    assert both.reason == "the file is partial (10,575 entries lost, cut short)"
    assert both.share == 1
    assert not find_data_loss(lost(trace(*healthy()), Problem("repaired: comma", 3, "")))


def test_a_cut_file_proves_no_idle_gpu() -> None:
    whole = Checker(trace(*waiting()))
    assert whole.decide_verdict().regime is Regime.OVERHEAD
    checker = Checker(lost(trace(*waiting()), Problem(CUT_SHORT, 1, "")))
    (found,) = checker.check(ids=["overhead-bound"])
    assert (found.state, found.answer.reason) == (State.CANNOT_TELL, "the file is partial (cut short)")
    assert checker.decide_verdict().regime is Regime.UNKNOWN
    assert checker.decide_verdict().busy == whole.decide_verdict().busy
    assert (
        checker.decide_verdict().advice
        == "cannot be told: the file is partial (cut short); this is of what could be read"
    )


def test_a_busy_gpu_is_busy_whatever_was_lost() -> None:
    checker = Checker(lost(trace(*healthy()), Problem(CUT_SHORT, 1, "")))
    assert checker.decide_verdict().regime is Regime.COMPUTE
    assert checker.decide_verdict().advice.endswith(" (of what could be read: cut short)")
    (found,) = checker.check(ids=["compute-bound"])
    assert found.has_fired
    assert found.answer.seen.endswith(" (of what could be read)")


@pytest.mark.parametrize(("steps", "state"), [(4, State.CANNOT_TELL), (40, State.FIRED)])
def test_few_lost_entries_leave_measured_idle_time(steps: int, state: State) -> None:
    """Two of 112 entries are more than a hundredth, two of 1,120 are not."""
    checker = Checker(lost(trace(*waiting(steps=steps)), Problem(UNREADABLE_ENTRY, 2, "")))
    (found,) = checker.check(ids=["overhead-bound"])
    assert found.state is state
    (absent,) = checker.check(ids=["graph-replay"])
    assert (absent.state, absent.answer.reason) == (State.CANNOT_TELL, "the file is partial (2 entries lost)")


def test_no_gpu_work_in_a_cut_file_is_not_told_as_not_recorded(tmp_path: Path) -> None:
    """Kineto writes GPU work last: cut before the first kernel, all of the CPU's part is there."""
    entries = sorted(healthy(), key=lambda entry: entry["cat"] == "kernel")
    text = json.dumps({"traceEvents": entries}).encode()
    cut = opened(text[: text.index(b'{"ph": "X", "cat": "kernel"') + 40], tmp_path / "cut")
    assert len(cut) == sum(entry["cat"] != "kernel" for entry in entries)
    assert Checker(cut).decide_verdict().line == "cannot be told: the file is partial (cut short)"
    missing = {remark.kind: remark.action for remark in diagnose_trace(cut).remarks_in(Section.MISSING)}
    assert missing["GPU work"] == "cannot be told: the file is partial (cut short)"
    assert missing["shapes"] == "profile(record_shapes=True)"  # the ops that are there say so
    never = opened(json.dumps({"traceEvents": [e for e in entries if e["cat"] != "kernel"]}).encode(), tmp_path / "n")
    assert Checker(never).decide_verdict().line == "no GPU activity was recorded"
    missing = {remark.kind: remark.action for remark in diagnose_trace(never).remarks_in(Section.MISSING)}
    assert missing["GPU work"].startswith("CUPTI gave no activity")


@pytest.mark.parametrize("tenths", range(1, 10))
def test_a_sample_cut_anywhere(tenths: int, tmp_path: Path) -> None:
    text = gzip.decompress(find("train_gpt_stack_memory").path.read_bytes())
    checker = Checker(opened(text[: len(text) * tenths // 10], tmp_path))
    findings = checker.check()
    assert len(findings) == len(PATTERNS)
    assert not [found.id for found in findings if found.state is State.ABSENT]
    assert not [found.id for found in findings if found.has_fired and found.pattern.fires_on_absence]
    verdict = checker.decide_verdict(findings=findings)
    assert "partial (cut short)" in verdict.advice or verdict.regime is Regime.COMPUTE


def test_a_rank_that_was_cut_has_no_evidence_and_breaks_nothing(tmp_path: Path) -> None:
    paths = late_rank(4, late=2).write(tmp_path)
    whole = paths[1].read_bytes()
    paths[1].write_bytes(whole[: whole.index(b'"cat": "kernel"')])
    made = merged(paths)
    findings, verdicts = MultiRankChecker(made).check(MultiRankChecker(made).default_scope)
    late = next(found for found in findings if found.id == "straggler")
    assert late.answer.seen.startswith("rank 2 comes last to 3 of 3 collectives")
    assert made.ranks is not None
    assert {made.ranks.rank_of_event(int(row)).number for row in late.answer.events} == {0, 2, 3}
    # Ranks come 3 µs after each other, rank 2 another 3000 later: 0 waits 3006 µs and 3 waits 2997; three ranks came.
    assert late.answer.at_stake == pytest.approx(3 * (3006 + 0 + 2997) * 1000 / 3)
    assert [verdict.busy is None for verdict in verdicts] == [False, True, False, False]
    assert "partial" in verdicts[1].advice


def test_a_slice_is_judged_by_its_own_range(tmp_path: Path) -> None:
    """Of a program whose GPU never waits half a step: the rest of that step is empty in the slice, and not idle."""
    source = tmp_path / "whole.json"
    source.write_text(json.dumps({"traceEvents": healthy()}))
    whole = load_trace(str(source), cache=False)
    write_slice(whole, 1_100_000, 1_600_000, tmp_path / "part.json")
    part = load_trace(str(tmp_path / "part.json"), cache=False)
    checker = Checker(part)
    shift = whole.origin - part.origin
    assert shift == -1_000_000  # the step that encloses the range begins at 1 ms
    assert (checker.default_scope.t0, checker.default_scope.t1) == (100_000, 600_000)
    wanted = Checker(whole).view(scopes.range_scope(1_100_000, 1_600_000)).busy_share
    assert checker.decide_verdict().busy == pytest.approx(wanted)
    assert checker.decide_verdict().regime is Regime.COMPUTE
    (slice_,) = [remark for remark in diagnose_trace(part).remarks if remark.kind == "slice"]
    assert slice_.meaning == "a slice of whole.json: 1.1 ms to 1.6 ms of the whole"


def test_a_slice_without_gpu_work_does_not_say_that_none_was_recorded(tmp_path: Path) -> None:
    source = tmp_path / "whole.json"
    source.write_text(json.dumps({"traceEvents": [*healthy(), cpu("aten::alone", 9000, 50)]}))
    write_slice(load_trace(str(source), cache=False), 8_990_000, 9_100_000, tmp_path / "part.json")
    part = load_trace(str(tmp_path / "part.json"), cache=False)
    assert Checker(part).decide_verdict().line == "no GPU activity lies in this slice"
    missing = {remark.kind: remark.action for remark in diagnose_trace(part).remarks_in(Section.MISSING)}
    assert missing["GPU work"] == "cannot be told: this is a slice of a longer trace"


def test_a_slice_of_a_partial_file_is_partial(tmp_path: Path) -> None:
    source = tmp_path / "cut.json"
    source.write_text(json.dumps({"traceEvents": healthy()})[:-200])
    write_slice(load_trace(str(source), cache=False), 0, 500_000, tmp_path / "part.json")
    part = load_trace(str(tmp_path / "part.json"), cache=False)
    assert part.problems == []
    assert find_data_loss(part).summary == "cut short"
    assert [remark.kind for remark in diagnose_trace(part).remarks_in(Section.LOST)] == [CUT_SHORT]


@pytest.mark.parametrize(
    "about",
    [None, [], {"range_ns": [5]}, {"range_ns": [5, 5]}, {"range_ns": ["a", 9]}, {"range_ns": [0, 2**63]}, {}],
)
def test_a_mark_that_makes_no_sense_is_none(about: object) -> None:
    made = trace(*healthy(), header={"torchprof_tui_slice": about})
    assert Checker(made).default_scope.is_whole_trace
    assert not find_data_loss(made)


def test_a_slice_of_before_says_its_range_and_is_judged_whole() -> None:
    made = trace(*healthy(), header={"torchprof_tui_slice": {"range_ns": [1_000_000, 2_000_000], "entries_of": 99}})
    assert Checker(made).default_scope.is_whole_trace
    (slice_,) = [remark for remark in diagnose_trace(made).remarks if remark.kind == "slice"]
    assert slice_.meaning == "a slice of another trace: 1 ms to 2 ms of the whole"


def test_bad_losses_in_a_mark_are_left_out() -> None:
    listed = [7, {"kind": CUT_SHORT}, {"kind": CUT_SHORT, "count": 1, "example": "x\x1b[2J"}]
    made = trace(*healthy(), header={"torchprof_tui_slice": {"range_ns": [0, 9], "partial": listed}})
    assert find_data_loss(made).summary == "cut short"
    (remark,) = diagnose_trace(made).remarks_in(Section.LOST)
    assert "\x1b" not in remark.example
