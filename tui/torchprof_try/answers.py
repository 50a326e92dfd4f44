"""The answer of `try`: what each remedy won."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from torchprof_try.patches import Places, build_patch, format_patch
from torchprof_try.remedies import BY_NAME
from torchprof_try.trials import BASELINE, TrialRow, Trials
from torchprof_tui.answers.record import Answer, Record, about, fill


class TrialRemedy(Record, frozen=True, kw_only=True):
    """One remedy, or the best of them together."""

    name: Annotated[str, about("of the remedy; together: of several")]
    says: Annotated[str, about("what it is")]
    state: Annotated[str, about("waiting, running, measured, failed, unused: the program has nothing that it changes")]
    reason: Annotated[str, about("why it failed; empty: it did not")]
    predicted_share: Annotated[float | None, about("of a step that check forecast; null: no forecast", "share")]
    predicted_by: Annotated[str, about("id of the finding whose forecast it is; empty: no forecast")]
    saved_share: Annotated[
        float | None, about("of a step that it saved, negative: slower; null: not measured", "share")
    ]
    saved_low_share: Annotated[float | None, about("lower end of the 95 % interval; null: too few runs", "share")]
    saved_high_share: Annotated[float | None, about("upper end of it", "share")]
    won: Annotated[bool, about("the whole interval is above 0")]
    step_us: Annotated[float | None, about("median step; null: not measured")]
    peak_memory_bytes: Annotated[int | None, about("of the allocator, or the process without a GPU", "bytes")]
    loss: Annotated[str, about("equal, within rounding, different; empty: no loss was seen")]
    patch: Annotated[str, about("what to write")]
    place: Annotated[str, about("FILE:LINE where it belongs, of the program; empty: not known")]
    diff: Annotated[str, about("the same as a unified diff, from the current folder; empty: the place is not known")]
    parts: Annotated[list[str], about("remedies that were combined; [] for one alone")]


class Tried(Answer, frozen=True, kw_only=True, tag="torchprof-tui/try/1"):
    """A program as it is, and with remedies."""

    command: Annotated[list[str], about("the program with its arguments")]
    device: Annotated[str, about("name of the GPU, or CPU")]
    torch: Annotated[str, about("version")]
    verdict: Annotated[str, about("first sentence of check about the recording")]
    baseline_us: Annotated[float | None, about("median step of the program as it is")]
    baseline_memory_bytes: Annotated[int | None, about("its peak memory", "bytes")]
    measured_steps: Annotated[int, about("of each process, after the warm-up", "")]
    complete: Annotated[bool, about("all remedies were tried; false: ended early")]
    trace: Annotated[str | None, about("recording of the program as it is, where it was kept")]
    remedies: Annotated[list[TrialRemedy], about("the best first")]


ANSWERS = (Tried,)  # what `--json` prints


def build_tried(trials: Trials) -> Tried:
    """Build the answer from the table, also from one that is not full."""
    rows = [row for row in trials.rows if row.name != BASELINE]
    rows.sort(key=lambda row: -row.saving.share if row.saving is not None else 2.0)
    baseline = next((row for row in trials.rows if row.name == BASELINE), None)
    return Tried(
        command=list(trials.request.command),
        device=trials.device,
        torch=trials.torch,
        verdict=trials.evidence.verdict if trials.evidence is not None else "",
        baseline_us=baseline.step * 1e6 if baseline is not None and baseline.step is not None else None,
        baseline_memory_bytes=baseline.memory if baseline is not None else None,
        measured_steps=trials.request.steps,
        complete=trials.is_complete,
        trace=trials.trace,
        remedies=[_build_remedy(row, trials.places) for row in rows],
    )


def _build_remedy(row: TrialRow, places: Places) -> TrialRemedy:
    patch = build_patch([BY_NAME[name] for name in row.parts or (row.name,)], places)
    saving = row.saving
    bounded = saving if saving is not None and math.isfinite(saving.low) else None
    return fill(
        TrialRemedy,
        row,
        reason=row.why,
        predicted_share=row.predicted,
        saved_share=None if saving is None else saving.share,
        saved_low_share=None if bounded is None else bounded.low,
        saved_high_share=None if bounded is None else bounded.high,
        won=saving is not None and saving.is_won,
        step_us=row.step * 1e6 if row.step is not None else None,
        peak_memory_bytes=row.memory,
        place=", ".join(patch.places),
        diff=patch.diff,
        parts=list(row.parts),
    )


def format_patches(tried: Tried, names: Sequence[str], places: Places) -> str:
    """Format the file of a patch with some remedies of the table, each with what was measured."""
    parts = []
    for each in tried.remedies:
        measured = "not measured"
        if each.saved_share is not None:
            shown = "" if each.won else " (not shown)"
            measured = f"saved {each.saved_share:.0%} of a step{shown}, losses {each.loss or 'not seen'}"
        if each.name in names:
            parts += [(BY_NAME[part], measured) for part in each.parts or [each.name]]
    return format_patch(parts, places)
