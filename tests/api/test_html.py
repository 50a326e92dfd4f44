"""Answers as HTML in notebooks: the numbers of the answer, no markup from traces."""

from __future__ import annotations

import contextlib
import html
import importlib.util
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import torchprof_tui as tt
from tests.helpers.command_line import call_main, read_json_answer
from tests.helpers.trace_builder import cpu, kernel, python, runtime, step
from torchprof_tui.answers.html import format_number

HOSTILE = "<script>alert(1)</script><img src=x onerror=\"alert('2')\">&amp;\x1b]0;title\x07"
ALLOWED = {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td"}


class Page(HTMLParser):
    """The tags, attributes and cells of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def list_answers(trace: tt.Trace) -> list[Any]:
    answers: list[Any] = [trace, trace.table(), trace.table(by="step"), trace.check(), trace.diff(trace)]
    answers += [trace.chain(len(trace.events) - 1)]
    with contextlib.suppress(tt.TraceError):
        answers += [trace.memory(), trace.memory_at()]
    return answers


def test_hostile_names_are_text(tmp_path: Path) -> None:
    entries = [step(0, 0, 500), step(1, 500, 500)]
    for number in range(8):
        start, name = 10 + 100 * number, HOSTILE + str(number)
        entries += [python(f"{HOSTILE}.py(1): f", start - 2, 60), cpu(name, start, 50)]
        entries += [runtime("cudaLaunchKernel", start + 5, 10, corr=number + 1)]
        entries += [kernel(name, start + 30, 20, corr=number + 1)]
    path = tmp_path / "<b>t.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": entries}), encoding="utf-8")
    answers = list_answers(tt.open(path))
    for answer in answers:
        text = answer._repr_html_()
        page = Page(text)
        assert page.tags <= ALLOWED, type(answer)
        assert page.attributes <= {"style", "title"}
        assert "\x1b" not in text
    assert any("<script>" in each for answer in answers for each in Page(answer._repr_html_()).texts)


@pytest.mark.long
def test_the_html_has_the_numbers_of_the_answer() -> None:
    trace = tt.open("sample:train_gpt_stack_memory")
    for answer in list_answers(trace):
        assert Page(answer._repr_html_()).tags <= ALLOWED
    check = trace.check()
    assert html.escape(check.verdict.first, quote=True) in check._repr_html_()
    assert f"{trace.memory_at().at.alive_bytes:,} bytes alive" in trace.memory_at()._repr_html_()
    assert f"{len(trace.events):,} events" in trace._repr_html_()
    table = trace.table()
    best = sorted((row for row in table if not row.annotation), key=lambda row: -row.self_gpu_us)
    texts = Page(table._repr_html_()).texts
    places = [texts.index(format_number(row.self_gpu_us)) for row in best[:3]]
    assert places == sorted(places)
    assert f"20 of {len(table):,} rows" in texts


@pytest.mark.parametrize("spec", ["sample:train_gpt_stack_memory", "sample:train_images_cpu"])
@pytest.mark.parametrize("of", ["calls", "kernels"])
def test_the_first_rows_of_json_are_those_of_the_screen(capsys: pytest.CaptureFixture[str], spec: str, of: str) -> None:
    rows = read_json_answer(capsys, "table", spec, "--of", of, "--json", "--limit", "3")["rows"]
    _, out, _ = call_main(capsys, "table", spec, "--of", of, "--limit", "3")
    shown = [line.split("  ")[0].strip().removesuffix("…") for line in out.splitlines() if re.search(r"\d", line)]
    for number, row in enumerate(rows):
        display = row.get("display", row["name"])
        assert any(display.startswith(name) for name in shown if name), (number, display, shown)
    if of == "calls":
        assert not any(row["annotation"] for row in rows)


def test_a_table_as_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    table = tt.open("sample:linear_eager").table()
    if importlib.util.find_spec("pandas"):
        frame = table.to_pandas()
        assert len(frame) == len(table)
        assert frame["self_gpu_us"].sum() == pytest.approx(sum(row.self_gpu_us for row in table))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(tt.MissingExtraError) as raised:
        table.to_pandas()
    assert "\n" not in str(raised.value)
    assert "pip install pandas" in str(raised.value)
