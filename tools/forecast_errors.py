"""Write how far forecasts of savings were off, from the tables of the benchmarks: python -m tools.forecast_errors

Reads benchmarks/fault_bench.md (what `check` forecast for the fault that its first sentence names, and what mending it
saved without the profiler) and the table "Predicted against measured" of benchmarks/try.md. A row is one program. Rows
whose first sentence names another fault than the one that was mended are left out: their forecast is of something else.
`--print` prints the same as Markdown.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.analysis.patterns.rules import written_out
from torchprof_tui.analysis.patterns.verdict import forecast_errors

ROOT = Path(__file__).resolve().parent.parent
STORE = Path(forecast_errors.__file__).with_suffix(".json")
FAULT_BENCH, TRIED = ROOT / "benchmarks" / "fault_bench.md", ROOT / "benchmarks" / "try.md"
TRIED_HEAD = "| program | finding | remedy | predicted | measured |"

HEADLINES = {
    "the same mask is made again at each use": "repeated-mask",
    "the same table of positions is made again at each use": "repeated-mask",
    "gradients are clipped in a loop over the parameters": "op-loop",
    "weights are cast to another type at each use": "op-loop",
    "kernels with few thread blocks": "few-blocks",
    "many small copies from host to gpu": "equal-copies",
    "copies of ": "equal-copies",
}
"""Sentences of rules that are no titles."""


def list_measured() -> Iterator[tuple[str, str, float, float]]:
    """Yield (pattern, program, forecast, measured) of each program, as shares of a step."""
    sentences = {pattern.title.lower(): name for name, pattern in PATTERNS.items()} | HEADLINES
    sentences |= {algorithm.headline.lower(): "written-out" for algorithm in written_out.ALGORITHMS}
    # Of a program that was recorded again the last row counts, whether or not it has a forecast.
    rows = {tuple(row[:2]): row for row in _read_rows(FAULT_BENCH, "| kind | model |")}
    for row in rows.values():
        kind, model, _, saved, _, _, named, _, forecast, _, sentence = row[:11]
        pattern = next((name for text, name in sentences.items() if sentence.lower().startswith(text)), "")
        if forecast and named == "yes" and pattern:
            yield pattern, f"{kind} {model}", _parse_share(forecast), _parse_share(saved)
    for program, pattern, _, forecast, saved, *_ in _read_rows(TRIED, TRIED_HEAD):
        yield pattern, program, _parse_share(forecast), _parse_share(saved)


def _read_rows(path: Path, head: str) -> Iterator[list[str]]:
    """Yield the cells of the tables of a page that begin with a head."""
    is_inside = False
    for line in path.read_text(encoding="utf-8").splitlines():
        is_inside = line.startswith(head) or (is_inside and line.startswith("|"))
        if is_inside and not line.startswith((head, "|---")):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def _parse_share(text: str) -> float:
    return float(text.removesuffix("%")) / 100


def build_store() -> dict[str, dict[str, float]]:
    """Build the store: by pattern the number of programs and the medians."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for pattern, program, forecast, measured in list_measured():
        found.setdefault(pattern, {})[program] = forecast, measured
    return {
        pattern: {
            "programs": len(programs),
            "median_error": round(statistics.median(abs(a - b) for a, b in programs.values()), 3),
            "median_saving": round(statistics.median(abs(b) for _, b in programs.values()), 3),
        }
        for pattern, programs in sorted(found.items())
    }


def format_store() -> str:
    """Format the store as it is packaged, a line for each pattern."""
    lines = [f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in build_store().items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def format_table() -> str:
    """Format the store as Markdown."""
    lines = ["| finding | programs | median error | median saving | forecast |", "|---|---|---|---|---|"]
    for name, each in build_store().items():
        error = forecast_errors.ForecastError(**each)  # type: ignore[arg-type]
        known = "not claimed" if error.is_rough else "shown, with its error"
        state = "withdrawn" if error.is_withdrawn else known if error.is_known else "shown"
        shares = f"{error.median_error * 100:.0f} points | {error.median_saving:.0%}"
        lines.append(f"| {name} | {error.programs} | {shares} | {state} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        print(format_table(), end="")
    else:
        STORE.write_text(format_store(), encoding="utf-8")
