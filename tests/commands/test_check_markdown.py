"""`check --markdown`: a report that can be pasted into a ticket, whatever the names in the trace are."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.command_line import call_main, read_json_answer
from tests.helpers.pattern_traces import waiting
from torchprof_tui.commands.check.markdown import escape_markdown

SAMPLE = "sample:train_gpt_starved"


def test_it_has_what_a_ticket_needs(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call_main(capsys, "check", SAMPLE, "--range", "0:60ms", "--markdown")
    answer = read_json_answer(capsys, "check", SAMPLE, "--range", "0:60ms", "--json")
    headings = [line for line in out.splitlines() if line.startswith("#")]
    problems = [one for one in answer["patterns"] if one["significant"]]
    assert headings[1:] == [
        "## Where the time goes",
        "## Largest gaps of the GPU",
        f"## Problems ({len(problems)})",
        "## Numbers",
        "## Repeat it",
    ]
    assert f"**{answer['verdict']['regime']} · GPU busy " in out
    assert [line.split("`")[1] for line in out.splitlines() if re.match(r"[0-9]+\. \*\*", line)] == [
        one["id"] for one in problems
    ]
    largest = sorted(answer["verdict"]["causes"], key=lambda cause: -cause["us"])
    causes = out[: out.index("## Largest gaps")].splitlines()
    rows = [line for line in causes if re.match(r"\| +[0-9.]+ % \|", line)]
    assert [row.split(" | ")[2] for row in rows] == [*(cause["label"] for cause in largest[:3]), "everything else"]
    for fact in ("| GPU | NVIDIA H200 |", "| torch | not recorded, CUDA 13.0 |", "| checked duration | 60.0 ms |"):
        assert fact in out
    assert "| steps | 3, 29.9 ms in the median |" in out
    assert re.search(r"\| GPU busy \| [0-9.]+ % of the steps \|", out)


def test_the_command_repeats_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "it's ``` here.json"
    path.write_text(json.dumps({"traceEvents": waiting()}))
    _, out, _ = call_main(capsys, "check", path, "--range", "0:1ms", "--markdown")
    fence, command = re.findall(r"^(`+)sh\n(.*)\n\1$", out, re.MULTILINE)[0]
    assert len(fence) == 4  # more than the name has in a row
    program, *words = shlex.split(command)
    assert program == "torchprof-tui"
    assert call_main(capsys, *words)[1] == out


def test_names_from_a_trace_are_no_markup(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    hostile = "<img src=x> | `a` [b](https://c) @team #12 *d* _e_"
    path = tmp_path / "<b>x|y.json"
    text = json.dumps(waiting()).replace("aten::add", json.dumps(hostile + "\n# f")[1:-1])
    path.write_text(f'{{"traceEvents": {text}}}')
    _, out, _ = call_main(capsys, "check", path, "--markdown")
    assert "&lt;b&gt;x\\|y.json" in out
    outside = re.sub(r"^ *(`{3,})\w+\n.*?^ *\1$", "", out, flags=re.MULTILINE | re.DOTALL)
    assert not re.search(r"<[a-z/]", outside)
    assert "https://" not in outside
    assert "@team" not in outside
    assert "\n# f" not in outside
    for line in outside.splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) in (3, 5, 7), line


@given(st.text(max_size=40))
def test_escaped_text_is_one_line_without_markup(text: str) -> None:
    escaped = escape_markdown(text)
    assert "\n" not in escaped
    assert "<" not in escaped
    assert ">" not in escaped
    bare = re.sub(r"\\.", "x", escaped)
    assert not set("`*_[]{}|~!\\$") & set(bare)
    assert not re.match(r"([-+]|[0-9]+[.)]|=+)(\s|$)|#", bare)
    assert "://" not in escaped
    assert not re.search(r"[@#](?=\w)", re.sub(r"&#[0-9]+;", "", escaped))


@pytest.mark.parametrize("text", ["60.0 ms", "-5 ns", "step 3", "a = b + c - d (e)"])
def test_ordinary_text_stays(text: str) -> None:
    assert escape_markdown(text) == text


@pytest.mark.parametrize("text", ["- x", "1. x", "2) x", "===", "# x", "www.a.de", "@a", "#12"])
def test_markup_does_not(text: str) -> None:
    assert escape_markdown(text) != text
