"""The command of an answer repeats it: the same rows, in the same order, and the same numbers to four digits."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands.mcp.test_answers import write_hostile
from tests.commands.mcp.test_numbers import ADDED, digits, drop_null, repeat, unpack_records
from tests.helpers.long_run import keep_some
from tests.helpers.mcp_sessions import Session
from torchprof_tui.commands.mcp.bounded_text import clean_values, round_number, shorten_name

TRAIN = {"trace": "sample:train_gpt_eager"}
STACKS = {"trace": "sample:train_gpt_stack_memory"}
CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("table", TRAIN, "rows"),
    ("table", {**TRAIN, "limit": 3}, "rows"),
    ("table", {**TRAIN, "limit": 5, "name": "addmm", "sort": "cpu"}, "rows"),
    ("table", {**TRAIN, "limit": 7, "name": "/^void .*reduce/"}, "rows"),
    ("table", {**TRAIN, "of": "kernels", "limit": 9, "step": 3}, "rows"),
    ("table", {**STACKS, "by": "stack", "limit": 4}, "rows"),
    ("repetitions", {"trace": "sample:generate_eager", "limit": 3}, "rows"),
    ("memory", {**STACKS, "limit": 6}, "rows"),
    ("memory_at", {**STACKS, "limit": 2}, "groups"),
    ("critical_path", {**TRAIN, "limit": 4}, "events"),
    ("diff", {"a": "sample:train_gpt_eager", "b": "sample:train_gpt_compile", "by": "class"}, "ops"),
]


@pytest.mark.parametrize(("tool", "arguments", "rows"), keep_some(CALLS, 5))
async def test_the_command_has_the_same_rows(
    capsys: pytest.CaptureFixture[str], tool: str, arguments: dict[str, Any], rows: str
) -> None:
    said = await Session(["."]).ask(tool, **arguments, max_tokens=50_000, full_names=True)
    told = repeat(capsys, said["command"])[rows]
    mine = unpack_records(said if rows == "rows" and "columns" in said else said[rows])
    added = (*ADDED, "longest_row_a", "longest_row_b")
    assert mine
    dropped = () if any("display" in row for row in mine) else ("display",)
    assert [drop_null(row, *added) for row in mine] == [drop_null(row, *added, *dropped) for row in told]


async def test_a_flame_has_the_lines_of_its_command() -> None:
    said = await Session(["."]).ask("flame", **STACKS, limit=5, max_tokens=50_000)
    lines = run_in_shell(said["command"]).splitlines()
    outer = f"{said['outer_frames']};" if said["outer_frames"] else ""
    assert [f"{outer}{row['stack']} {row['self_ns']}" for row in unpack_records(said)] == lines
    assert len(lines) == 5


@pytest.mark.long
async def test_a_snapshot_is_the_screen_of_its_command(tmp_path: Path) -> None:
    text, is_error = await Session(["."]).call("snapshot", **TRAIN, view="table", size="80x24", max_tokens=50_000)
    command, screen = text.split("\n", 1)
    run_in_shell(command.removeprefix("command: "), tmp_path)
    assert not is_error
    assert (tmp_path / "screen.txt").read_text(encoding="utf-8").rstrip("\n") == screen.rstrip("\n")


@pytest.mark.long
async def test_names_that_no_shell_reads_are_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_hostile(tmp_path / "t.json", 8)
    session = Session(["."])
    for name in ("two\nlines\rback", "\x1b[31mred\x1b]0;title\x07", "-- --json; rm -rf ~ '$(id)' `id`"):
        said = await session.ask("chain", trace="t.json", event=name)
        told = json.loads(run_in_shell(said["command"], tmp_path))
        hops = [(row["name"], row["row"]) for row in unpack_records(said["chain"])]
        assert hops
        assert [(clean_values(hop["name"]), hop["event"]) for hop in told["chain"]] == hops


def run_in_shell(command: str, folder: Path | None = None) -> str:
    """Run a command as a user of bash who pastes it; return what it prints."""
    line = command.replace("torchprof-tui ", f"{sys.executable} -m torchprof_tui ", 1)
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=folder, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_numbers_have_four_digits_and_kernels_short_names() -> None:
    session = Session(["."])
    short = await session.ask("table", **TRAIN, of="kernels", limit=20)
    full = await session.ask("table", **TRAIN, of="kernels", limit=20, full_names=True, max_tokens=50_000)
    rows, others = unpack_records(short), unpack_records(full)
    for mine, theirs in zip(rows, others, strict=True):
        assert len(mine["name"]) <= len(theirs["name"])
        assert mine["longest_row"] == theirs["longest_row"]
        assert "<" not in mine["name"]
        for value in mine.values():
            if isinstance(value, float):
                assert len(re.sub(r"e.*|\D", "", str(value)).lstrip("0")) <= 4
    assert any("<" in row["name"] for row in others)
    assert len(json.dumps(short)) < 0.6 * len(json.dumps(full))
    said = await session.ask("chain", **TRAIN, event=rows[0]["name"])
    assert said["count"] if "count" in said else said["row"]


def test_rounding() -> None:
    assert [round_number(each) for each in (0.0, 1234567.8, 0.000123456, 24.75159, -1999.96)] == [
        0, 1235000, 0.0001235, 24.75, -2000,
    ]  # fmt: skip
    assert clean_values({"us": 1.23456, "start_us": 1.23456, "row": 123456, "rows": [1.23456]}) == digits(
        {"us": 1.23456, "start_us": 1.23456, "row": 123456, "rows": [1.23456]}
    )


def test_only_names_of_kernels_are_shortened() -> None:
    long = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, Array<int> >(int)"
    assert shorten_name(long) == "fill fp32"
    for text in (
        f"the kernel {long} is slow",
        "path/to/file.py(12): function_with_a_long_name::x<y>",
        "aten::mm",
        "x" * 90,
    ):
        assert shorten_name(text) == text
