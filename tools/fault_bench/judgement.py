"""Judge what `check` says of the recorded cells: names, advice, twins accused, forecasts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from .kinds import KINDS

LEAST_SAVING = 0.05
"""Cells whose fix saves less are not counted: nobody would look for such a fault first."""

CLOSE = 0.10
"""Largest difference of forecast and measured saving, as a share of the faulty step."""

VARIANTS = ("faulty", "mended")

COLUMNS = (
    *("kind", "model", "regime of the twin", "saving", "noise", "counts", "named", "twin accused"),
    *("forecast", "stake", "first sentence"),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What is read of a check: the first sentence, and the action, forecast and stake of the first problem.

    `forecast` and `stake` are shares of the step, `forecast` None where no saving is claimed.
    """

    sentence: str
    action: str
    forecast: float | None
    stake: float
    regime: str


@dataclass(frozen=True, slots=True)
class Judged:
    """One cell: the measured saving with its noise (shares of the faulty step), and both answers."""

    kind: str
    model: str
    saving: float
    noise: float
    faulty: Answer
    mended: Answer

    @property
    def counts(self) -> bool:
        return self.saving >= LEAST_SAVING and self.saving > self.noise

    @property
    def named(self) -> bool:
        """Whether the first sentence names the fault, and it or the first problem has the right action."""
        kind, text = KINDS[self.kind], f"{self.faulty.sentence}\n{self.faulty.action}"
        return _matches(kind.sentence, self.faulty.sentence) and _matches(kind.action, text)

    @property
    def accused(self) -> bool:
        """Whether the twin is accused of the same fault."""
        return _matches(KINDS[self.kind].sentence, self.mended.sentence)

    @property
    def error(self) -> float | None:
        return None if self.faulty.forecast is None else abs(self.faulty.forecast - self.saving)

    @property
    def within_stake(self) -> bool | None:
        return None if self.faulty.forecast is None else self.faulty.forecast <= self.faulty.stake + 1e-6


def _matches(expression: str, text: str) -> bool:
    return re.search(expression, text.lower()) is not None


def measure_saving(cell: dict[str, Any]) -> tuple[float, float]:
    """Compute the saving as a share of the faulty step, and its noise: half the range over the rounds."""
    saving = 1 - cell["mended_ms"] / cell["faulty_ms"]
    pairs = zip(cell["faulty_rounds_ms"], cell["mended_rounds_ms"], strict=True)
    rounds = [1 - mended / faulty for faulty, mended in pairs]
    return saving, (max(rounds) - min(rounds)) / 2


def ask(path: str) -> Answer:
    """Check a trace through the Python API."""
    import torchprof_tui as tt  # deferred: the machine that records may not have it

    with tt.open(path, cache=False) as trace:
        check = trace.check()
    first = next(iter(check.problems), None)
    return Answer(
        check.verdict.first,
        first.action if first else "",
        first.won_share if first else None,
        first.share if first else 0.0,
        str(check.verdict.regime),
    )


def judge_cells(folder: str, cells: Iterable[dict[str, Any]]) -> list[Judged]:
    """Check both traces of each recorded cell, on all cores."""
    recorded = [cell for cell in cells if cell["status"] == "recorded"]
    stems = [os.path.join(folder, f"{cell['kind']}.{cell['model']}") for cell in recorded]
    with ProcessPoolExecutor() as workers:
        faulty, mended = (workers.map(ask, [f"{stem}.{name}.json.gz" for stem in stems]) for name in VARIANTS)
        return [
            Judged(cell["kind"], cell["model"], *measure_saving(cell), *answers)
            for cell, *answers in zip(recorded, faulty, mended, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Rates:
    """The four rates as (hits, of how many), over the cells that count."""

    named: tuple[int, int]
    accused: tuple[int, int]
    close: tuple[int, int]
    within_stake: tuple[int, int]


def compute_rates(judged: Iterable[Judged]) -> Rates:
    """Count over the cells whose saving is large enough and above its noise."""
    counted = [cell for cell in judged if cell.counts]
    claimed = [cell for cell in counted if cell.error is not None]
    return Rates(
        (sum(cell.named for cell in counted), len(counted)),
        (sum(cell.accused for cell in counted), len(counted)),
        (sum(cell.error <= CLOSE for cell in claimed if cell.error is not None), len(claimed)),
        (sum(bool(cell.within_stake) for cell in claimed), len(claimed)),
    )


def format_report(judged: Sequence[Judged], cells: Sequence[dict[str, Any]], half: str) -> str:
    """Format the rates, the table of all cells, and what was not recorded, as Markdown."""
    rates = compute_rates(judged)
    counted = sum(cell.counts for cell in judged)
    lines = [
        f"Half: {half}. {len(judged)} cells; {counted} count (saving at least {LEAST_SAVING:.0%} and above its noise).",
        "",
        "| rate | measured | required |",
        "|---|---|---|",
    ]
    for label, (hits, total), required in (
        ("faults named with the right action", rates.named, "at least 85 %"),
        ("twins accused", rates.accused, "at most 5 %"),
        ("forecasts within 10 points", rates.close, "at least 80 %"),
        ("forecasts within the stake", rates.within_stake, "100 %"),
    ):
        lines.append(f"| {label} | {_format_rate(hits, total)} | {required} |")
    lines += [
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---" * len(COLUMNS) + "|",
    ]
    lines += [_format_row(cell) for cell in judged]
    missing = [cell for cell in cells if cell["status"] != "recorded"]
    if missing:
        lines += ["", "Not recorded:", ""]
        lines += [f"- {cell['kind']} × {cell['model']}: {cell['status']}, {cell['reason']}" for cell in missing]
    return "\n".join(lines) + "\n"


def _format_rate(hits: int, total: int) -> str:
    return f"{hits} of {total} ({hits / total:.0%})" if total else "no cell"


def _format_row(cell: Judged) -> str:
    forecast = "" if cell.faulty.forecast is None else f"{cell.faulty.forecast:.0%}"
    texts = (
        cell.kind,
        cell.model,
        cell.mended.regime,
        f"{cell.saving:.0%}",
        f"{cell.noise:.0%}",
        "yes" if cell.counts else "no",
        "yes" if cell.named else "no",
        "yes" if cell.accused else "no",
        forecast,
        f"{cell.faulty.stake:.0%}",
        cell.faulty.sentence.replace("|", "\\|"),
    )
    return f"| {' | '.join(texts)} |"
