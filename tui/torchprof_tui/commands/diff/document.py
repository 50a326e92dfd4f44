"""Build the JSON document of a comparison."""

from __future__ import annotations

from typing import Any

from torchprof_tui.analysis.compare.account import Account, PartChange
from torchprof_tui.analysis.compare.by_name import Device, compare_by_name
from torchprof_tui.analysis.compare.comparison import Comparison
from torchprof_tui.analysis.compare.comparison_verdict import ChangeCause, ComparisonVerdict
from torchprof_tui.analysis.compare.matched_rows import ComparedRow
from torchprof_tui.analysis.compare.side import Side
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict
from torchprof_tui.commands.diff.rows import CAUSE, CLASS, choose_matching, group_account

SCHEMA = "torchprof-tui/diff/1"

ONE_STEP = "one step: its spread over steps is not known"


def build_document(comparison: Comparison, by: str) -> dict[str, Any]:
    """Build the JSON of a comparison; times are µs of one step, and `parts` sum to `step_us.delta`."""
    account = comparison.account
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "a": _side_as_json(comparison.a),
        "b": _side_as_json(comparison.b),
        "same_recording": comparison.is_same_recording,
        "comparable": [
            {"what": each.what, "a": each.a, "b": each.b, "consequence": each.consequence}
            for each in comparison.differences
        ],
        "step_us": _step_as_json(account),
        "divided": "gpu" if account.is_of_gpu else "cpu",
        "parts": [_part_as_json(part) for part in account.parts],
        "launches": {"a": comparison.a.launches_per_step, "b": comparison.b.launches_per_step},
        "gpu_work": {"a": comparison.a.work_per_step, "b": comparison.b.work_per_step},
        "verdict": _verdict_as_json(comparison.verdict),
        "ranks": [
            {"rank": each.rank, "a_us": each.a / 1000, "b_us": each.b / 1000, "delta_us": each.delta / 1000}
            for each in comparison.ranks
        ],
    }
    matched = comparison.match_rows(choose_matching(by))
    document["by"] = by
    document["ops"] = [_row_as_json(row) for row in matched.rows]
    document["ops_not_matched"] = _row_as_json(matched.not_matched)
    document["ops_total"] = _row_as_json(matched.total)
    document["by_name"] = _names_as_json(comparison)
    if by in (CLASS, CAUSE):
        document["rows"] = [
            {"name": row.label, "a_us": row.a / 1000, "b_us": row.b / 1000, "delta_us": row.delta / 1000}
            for row in group_account(account, by)
        ]
    return document


def _row_as_json(row: ComparedRow) -> dict[str, Any]:
    """Build a row of matched calls: a step's calls, CPU self time and GPU time; `share` of the total difference."""
    return {
        "status": row.status.value,
        "name_a": row.name_a,
        "name_b": row.name_b,
        "below": row.below,
        "calls_a": row.calls_a,
        "calls_b": row.calls_b,
        "cpu_us_a": row.cpu_ns_a / 1000,
        "cpu_us_b": row.cpu_ns_b / 1000,
        "gpu_us_a": row.gpu_ns_a / 1000,
        "gpu_us_b": row.gpu_ns_b / 1000,
        "delta_us": row.delta_ns / 1000,
        "share": round(row.share, 6),
    }


def _names_as_json(comparison: Comparison) -> list[dict[str, Any]]:
    """Build the list of all names: calls and time, with that of what they call, in the whole of both traces."""
    a, b = (
        Side(side.trace, side.side.label, (side.trace.span[0], side.trace.span[1] + 1), ())
        for side in (comparison.a, comparison.b)
    )
    devices: tuple[tuple[Device, str], ...] = (("cpu", "CPU"), ("gpu", "GPU"))
    return [
        {
            "name": row.name,
            "device": label,
            "calls_a": row.count_a,
            "calls_b": row.count_b,
            "us_a": row.total_a / 1000,
            "us_b": row.total_b / 1000,
        }
        for device, label in devices
        for row in compare_by_name(a, b, device)
    ]


def _side_as_json(side: SideAnalysis) -> dict[str, Any]:
    return {
        "label": side.side.label,
        "steps": [step.number for step in side.side.steps],
        "start_ns": side.span[0],
        "duration_ns": side.span[1] - side.span[0],
        "left_out": list(side.side.left_out),
    }


def _step_as_json(account: Account) -> dict[str, Any]:
    step: dict[str, Any] = {
        "a": account.a / 1000,
        "b": account.b / 1000,
        "delta": account.delta / 1000,
        "noise": None if account.noise is None else account.noise / 1000,
        "within_noise": account.is_within_noise,
    }
    if account.noise is None:
        step["cannot_tell"] = ONE_STEP
    return step


def _part_as_json(part: PartChange) -> dict[str, Any]:
    return {
        "id": part.id,
        "name": part.label,
        "a_us": part.a / 1000,
        "b_us": part.b / 1000,
        "delta_us": part.delta / 1000,
        "noise_us": None if part.noise is None else part.noise / 1000,
        "within_noise": part.is_within_noise,
    }


def _verdict_as_json(verdict: ComparisonVerdict) -> dict[str, Any]:
    return {
        "first": verdict.headline,
        "launches": verdict.launches or None,
        "a": _side_verdict_as_json(verdict.a),
        "b": _side_verdict_as_json(verdict.b),
        "causes": [_cause_as_json(cause) for cause in verdict.causes],
        "patterns_a_only": [_finding_as_json(found) for found in verdict.patterns_a_only],
        "patterns_b_only": [_finding_as_json(found) for found in verdict.patterns_b_only],
    }


def _side_verdict_as_json(verdict: Verdict) -> dict[str, Any]:
    return {"regime": verdict.regime.value, "gpu_busy": verdict.busy, "first": verdict.first}


def _cause_as_json(cause: ChangeCause) -> dict[str, Any]:
    return {
        "cause": cause.part.id,
        "name": cause.part.label,
        "delta_us": cause.part.delta / 1000,
        "within_noise": cause.part.is_within_noise,
        "pattern": None if cause.pattern is None else cause.pattern.id,
        "side": cause.side,
        "line": cause.location,
        "line_text": cause.line or None,
    }


def _finding_as_json(found: Finding) -> dict[str, Any]:
    return {"id": found.id, "seen": found.answer.seen, "share": round(found.share, 6)}
