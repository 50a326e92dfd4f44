"""Write `docs/patterns/`, a page per pattern: ``python -m tools.pattern_pages [--check] [--pictures]``

Without options it writes the pages and the index from the registry, makes the pictures that are missing, and removes
the pages and pictures of patterns that are gone. `--pictures` makes every picture again. `--check` writes nothing and
fails if a page differs. A picture is the app's own screen on the sample in which the pattern costs most, else on the
pattern's test case; `pictures.json` has the source of each.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.helpers.pattern_traces import GEMM, H200, SGEMM, op_with_work
from tests.helpers.shape_traces import op_with_shapes
from tests.helpers.trace_builder import Entry
from torchprof_samples import SAMPLES
from torchprof_tui.analysis.collectives.communication_waiting import compute_arrivals
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.analysis.patterns.engine.pattern import Finding, Pattern, Severity, State
from torchprof_tui.analysis.patterns.engine.thresholds import Threshold
from torchprof_tui.analysis.patterns.verdict.latest_check import LatestOnlyChecker
from torchprof_tui.analysis.words.dictionary import load_words
from torchprof_tui.cli import main as run_program
from torchprof_tui.commands.common.load import load_specs
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.number_format import format_share, format_value

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "patterns"
INDEX, SOURCES = "README.md", "pictures.json"
CASE_MODULES = ROOT / "tests" / "analysis" / "patterns" / "rules"

PICTURE_SIZE = "100x30"

DEVICE = {
    **H200,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 233472,
    "sharedMemPerBlockOptin": 232448,
}
"""The device of the test cases, as Kineto records an H200."""

FURTHER_CASES: dict[str, list[list[Entry]]] = {
    "no-tensor-core": [op_with_work("aten::mm", 0, 20, 30, SGEMM)],
    "gemm-efficiency": [
        op_with_shapes("aten::mm", [[4096, 4096], [4096, 4096]], ["c10::BFloat16"] * 2, 0, 20, 1000, GEMM)
    ],
    "wave-quantization": [
        op_with_work(
            "aten::mm",
            0,
            20,
            500,
            GEMM,
            grid=[140, 1, 1],
            block=[384, 1, 1],
            **{"registers per thread": 168, "shared memory": 200_000},
        )
    ],
}
"""Traces in which a pattern fires, for patterns without a sample whose tests have no `CASES` for it."""

_COMMAND = "python -m tools.pattern_pages"
_SEVERITIES = {
    Severity.PROBLEM: "a problem: it costs time that a change could save",
    Severity.NOTICE: "a notice: it helps to read the trace",
    Severity.ARTEFACT: "an artefact: the profiler causes it, and no time is at stake",
}


@dataclass(frozen=True)
class PictureSource:
    """What a picture shows: `trace`, "sample:NAME" or "case" for the test case of the pattern, and the keys pressed."""

    trace: str
    keys: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page differs")
    parser.add_argument("--pictures", action="store_true", help="make every picture again")
    options = parser.parse_args()
    if options.check:
        differing = find_differences()
        for name in differing:
            print(f"docs/patterns/{name}: run `{_COMMAND}`", file=sys.stderr)
        return int(bool(differing))
    FOLDER.mkdir(exist_ok=True)
    make_pictures(every=options.pictures)
    for name, page in render_pages(read_sources()).items():
        (FOLDER / name).write_text(page, encoding="utf-8")
    for path in FOLDER.iterdir():
        if path.name not in (INDEX, SOURCES) and path.stem not in PATTERNS:
            path.unlink()
    return 0


def find_differences() -> list[str]:
    """List the pages and pictures that are missing, differ from the registry, or belong to no pattern."""
    sources = read_sources()
    pages = render_pages(sources)
    pictures = {f"{name}.svg" for name in sources}
    present = {path.name for path in FOLDER.iterdir()}
    differing = [
        name for name, page in pages.items() if name not in present or (FOLDER / name).read_text("utf-8") != page
    ]
    return sorted([*differing, *(pictures - present), *(present - pages.keys() - pictures - {SOURCES})])


def read_sources() -> dict[str, PictureSource]:
    """Read the source of each picture: pattern id -> source. A pattern that nothing shows has none."""
    path = FOLDER / SOURCES
    if not path.exists():
        return {}
    return {name: PictureSource(**fields) for name, fields in json.loads(path.read_text("utf-8")).items()}


# -- pages ------------------------------------------------------------------------------------------------------


def render_pages(sources: dict[str, PictureSource]) -> dict[str, str]:
    """Render all pages and the index: file name -> text."""
    pages = {f"{pattern.id}.md": render_page(pattern, sources.get(pattern.id)) for pattern in PATTERNS.values()}
    return {INDEX: render_index(), **pages}


def render_index() -> str:
    lines = [
        "# Patterns",
        "",
        f"What `check` and the cheatsheet look for, by section; `torchprof-tui check --list` prints the same. "
        f"Written by `{_COMMAND}`.",
        "",
    ]
    for section in dict.fromkeys(pattern.section for pattern in PATTERNS.values()):
        lines += [f"## {section.value}", "", "| pattern | kind | what it finds |", "|---|---|---|"]
        lines += [
            f"| [{pattern.id}]({pattern.id}.md) | {pattern.severity.value} | {_escape_cell(pattern.title)} |"
            for pattern in PATTERNS.values()
            if pattern.section is section
        ]
        lines.append("")
    return "\n".join(lines)


def render_page(pattern: Pattern, source: PictureSource | None) -> str:
    """Render the page of a pattern; `source`: that of its picture, None without one."""
    lines = [
        f"# {pattern.title}",
        "",
        f"`{pattern.id}` · {pattern.section.value} · {_SEVERITIES[pattern.severity]}.",
        "",
    ]
    if source is not None:
        lines += [f"![{pattern.title}]({pattern.id}.svg)", "", f"{_describe_source(source)}.", ""]
    else:
        lines += ["No sample shows this pattern, so there is no picture.", ""]
    lines += ["## Meaning", "", f"{_sentence(pattern.meaning)}", ""]
    words = ", ".join(map(_link_word, sorted(word.term for word in load_words() if pattern.id in word.patterns)))
    lines += [f"Words: {words}", ""] if words else []
    lines += ["## Rule", "", _sentence(pattern.decided), ""]
    if pattern.thresholds:
        lines += ["| threshold | value | why |", "|---|---:|---|"]
        lines += [
            f"| {_escape_cell(limit.name)} | {format_threshold(limit)} | {_escape_cell(limit.reason)} |"
            for limit in pattern.thresholds
        ]
        lines.append("")
    if pattern.fires_on_absence:
        lines += ["It is found by missing events, so it is undetermined in a file that lost entries.", ""]
    if pattern.applies_to_all_ranks:
        lines += ["It compares the ranks of one run: open them together.", ""]
    lines += ["## Fix", "", f"{_sentence(pattern.action)}", ""]
    if pattern.code:
        lines += ["```python", pattern.code, "```", ""]
    lines += ["`check` may name a more exact fix, which depends on the ops that cause the problem and on the GPU.", ""]
    lines += ["## Check for it", "", "```sh", f"torchprof-tui check TRACE --fail-on {pattern.id}", "```", ""]
    lines += [f"[All patterns]({INDEX})", ""]
    return "\n".join(lines)


def format_threshold(limit: Threshold) -> str:
    """Format the value of a threshold in the unit that a reader expects."""
    if limit.unit == "share":
        return format_share(limit.value)
    if limit.unit == "ns":
        return format_duration(limit.value)
    if limit.unit == "bytes":
        return format_value(limit.value, "bytes")
    return f"{limit.value:g} {limit.unit}"


def _describe_source(source: PictureSource) -> str:
    if source.trace == "case":
        return "A small constructed trace in which it is found: the test case of this pattern"
    return f"Found in a recorded sample: `torchprof-tui {source.trace}`, keys `{source.keys.replace(',', ' ')}`"


def _sentence(text: str) -> str:
    ending = "" if text.endswith((".", "?", "!")) else "."
    return f"{text[0].upper()}{text[1:]}{ending}".replace("<", "&lt;")


def _link_word(term: str) -> str:
    anchor = re.sub(r"[^\w\s-]", "", term).lower().replace(" ", "-")
    return f"[{term}](../words.md#{anchor})"


def _escape_cell(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "\\|")


# -- pictures ---------------------------------------------------------------------------------------------------


def make_pictures(every: bool = False) -> None:
    """Make the pictures that are missing, or every one, and write their sources."""
    sources = {name: source for name, source in read_sources().items() if name in PATTERNS}
    wanted = [name for name in PATTERNS if every or name not in sources or not (FOLDER / f"{name}.svg").exists()]
    found = find_sample_sources(wanted) if wanted else {}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        # The title line has the path as it was given, and recent traces are the author's own.
        os.environ["XDG_STATE_HOME"] = folder
        os.chdir(folder)
        for name in wanted:
            source = found.get(name) or write_case(name)
            sources.pop(name, None)
            if source is not None:
                _take_picture(name, source)
                sources[name] = source
        os.chdir(before)
    ordered = {name: asdict(sources[name]) for name in PATTERNS if name in sources}
    (FOLDER / SOURCES).write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def _take_picture(name: str, source: PictureSource) -> None:
    picture = FOLDER / f"{name}.svg"
    trace = f"{name}.json" if source.trace == "case" else source.trace
    words = ["snapshot", trace, "--size", PICTURE_SIZE, "--keys", source.keys, "-o", str(picture)]
    if status := run_program(words):
        raise SystemExit(status)
    picture.write_text(shrink_svg(picture.read_text("utf-8")), encoding="utf-8")
    print(f"docs/patterns/{picture.name}: {picture.stat().st_size / 1000:.0f} KB, {source.trace}")


def shrink_svg(svg: str) -> str:
    """Remove what a picture of text can do without: clipping by line, long class names, line breaks."""
    svg = re.sub(r'\s+clip-path="url\(#[\w-]+-line-\d+\)"', "", svg)
    svg = re.sub(r'<clipPath id="[\w-]+-line-\d+">.*?</clipPath>', "", svg, flags=re.DOTALL)
    svg = re.sub(r"terminal-\d+-", "t-", svg)
    return re.sub(r">\s*\n\s*<", ">\n<", svg)


def find_sample_sources(wanted: list[str]) -> dict[str, PictureSource]:
    """Find the sample in which each pattern costs most: pattern id -> source.

    Several ranks only if no single one shows it, and no trace with Python frames: they name folders of another host.
    """
    best: dict[str, tuple[tuple[bool, float, int], PictureSource]] = {}
    for sample in SAMPLES:
        trace = load_specs([f"sample:{sample.name}"], cache=False).trace
        if trace.counts.by_category.get("python_function"):
            continue
        findings, first_keys = _check_as_shown(trace)
        fired = [finding for finding in findings if finding.has_fired]
        for index, finding in enumerate(fired):
            if finding.id not in wanted or not len(finding.answer.events):
                continue
            rank = (trace.merged_ranks is None, finding.share, len(finding.answer.events))
            if finding.id not in best or rank > best[finding.id][0]:
                source = PictureSource(f"sample:{sample.name}", _build_keys(first_keys, index))
                best[finding.id] = rank, source
    return {name: source for name, (_, source) in best.items()}


def write_case(name: str) -> PictureSource | None:
    """Write the test case in which a pattern fires to `NAME.json` here; None if there is none."""
    for entries in _list_cases(name):
        header = {"schemaVersion": 1, "deviceProperties": [DEVICE]}
        Path(f"{name}.json").write_text(json.dumps({**header, "traceEvents": entries}), encoding="utf-8")
        findings, first_keys = _check_as_shown(load_specs([f"{name}.json"], cache=False).trace)
        fired = [finding.id for finding in findings if finding.has_fired]
        if name in fired:
            return PictureSource("case", _build_keys(first_keys, fired.index(name)))
    return None


def _list_cases(name: str) -> Iterator[Sequence[Entry]]:
    """List the entries of the test cases in which a pattern must fire, on an H200."""
    yield from FURTHER_CASES.get(name, [])
    for path in sorted(CASE_MODULES.glob("test_*.py")):
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        cases = getattr(module, "CASES", {})
        if name in cases and State.FIRED in cases[name]:
            yield cases[name][State.FIRED]


def _check_as_shown(trace: Trace) -> tuple[list[Finding], str]:
    """Check a trace as the app does when it opens: (findings in the cheatsheet's order, keys to show that)."""
    arrivals = compute_arrivals(trace.merged_ranks) if trace.merged_ranks is not None else None
    findings = LatestOnlyChecker(trace, arrivals).precompute().result.findings
    # Several ranks: open the first one, and check all of it.
    return list(findings), "c" if arrivals is None else "space,c,v,v"


def _build_keys(first_keys: str, index: int) -> str:
    """Build the keys that choose the entry at `index`, select its first evidence and show what surrounds it."""
    return ",".join([first_keys, *["down"] * index, "enter", "s", "s"])


if __name__ == "__main__":
    sys.exit(main())
