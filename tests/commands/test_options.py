"""The options of commands: what argparse fills, what others build, and what is refused from both."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from functools import partial

import pytest

from torchprof_tui.commands.chain import ChainOptions
from torchprof_tui.commands.check import CheckOptions
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.options import Options
from torchprof_tui.commands.common.parsers import build_parser, import_options, list_commands, read_options
from torchprof_tui.commands.critical_path import CriticalPathOptions
from torchprof_tui.commands.diff import DiffOptions
from torchprof_tui.commands.export import ExportOptions
from torchprof_tui.commands.mcp.answers import build_options
from torchprof_tui.commands.memory import MemoryOptions
from torchprof_tui.commands.perfetto import PerfettoOptions
from torchprof_tui.commands.table import TableOptions
from torchprof_tui.commands.what_if import WhatIfOptions

ALL = ("open", *list_commands())


def read(line: str) -> Options:
    """Read a command line as the program does."""
    command, *words = shlex.split(line)
    return read_options(command, build_parser(command).parse_args(words), None)


@pytest.mark.parametrize("command", ALL)
def test_the_parser_fills_every_field_and_has_the_default_of_each(command: str) -> None:
    options, parser = import_options(command), build_parser(command)
    for name, argument in options.arguments.items():
        actions = [action for action in parser._actions if action.dest == name]
        assert actions, name
        if not argument.is_required and not argument.is_positional:
            assert parser.get_default(name) == ([] if argument.is_list else argument.default), name
    without_argument = {each.name for each in fields(options)} - options.arguments.keys()
    assert without_argument == {"configuration"} | ({"command", "recording"} if command == "run" else set())


@pytest.mark.parametrize(
    ("line", "build"),
    [
        ("table x --limit=-1", lambda: TableOptions(trace=("x",), limit=-1)),
        ("critical-path x --top 1000000000", lambda: CriticalPathOptions(trace=("x",), top=10**9)),
        ("perfetto x --port 0", lambda: PerfettoOptions(trace=("x",), port=0)),
        ("table x --jobs 99999", lambda: TableOptions(trace=("x",), jobs=99999)),
        ("critical-path x --step 1 --range 0:1", lambda: CriticalPathOptions(trace=("x",), step=1, range="0:1")),
        ("export x --range 0:1 --step 1", lambda: ExportOptions(trace=("x",), range="0:1", step=1)),
        ("table x --json --csv", lambda: TableOptions(trace=("x",), json=True, csv=True)),
        ("diff a b --steps 1 --range 0..1", lambda: DiffOptions(a="a", b="b", steps="1", range="0..1")),
        ("chain x --event e --nth -1", lambda: ChainOptions(trace=("x",), event="e", nth=-1)),
        ("table x --of kernels --flops", lambda: TableOptions(trace=("x",), of="kernels", flops=True)),
        ("check x --undecided pass", lambda: CheckOptions(trace=("x",), undecided="pass")),
        ("check", CheckOptions),
    ],
)
def test_a_mistake_is_the_same_line_from_the_parser_and_from_who_builds_the_options(
    line: str, build: Callable[[], Options]
) -> None:
    with pytest.raises(UsageError) as typed:
        read(line)
    with pytest.raises(UsageError) as built:
        build()
    assert str(built.value) == str(typed.value)


def test_a_value_that_is_no_choice_is_refused() -> None:
    with pytest.raises(UsageError, match="argument --by: invalid choice: 'x'"):
        MemoryOptions(trace=("x",), by="x")  # type: ignore[arg-type]


def test_options_do_not_change() -> None:
    options = CheckOptions(trace=("x",))
    with pytest.raises(FrozenInstanceError):
        options.json = True  # type: ignore[misc]


def test_the_command_line_of_an_answer_gives_the_same_options() -> None:
    built = (
        build_options(partial(TableOptions, trace=("a b",), of="kernels", step=0, sort=None, limit=5, json=True)),
        build_options(partial(ChainOptions, trace=("./-x",), event="--json", nth=0, rank=None)),
        build_options(partial(DiffOptions, a="a", b="b", by="op", steps="'#3'", json=True)),
        build_options(partial(WhatIfOptions, trace=("x",), set=("cpu=0.5", "kernel=a b*0"), rank=1)),
        build_options(partial(ExportOptions, trace=("x",), format="folded", by="op", range="0:1ms")),
    )
    for options, command in built:
        program, line = command.split(" ", 1)
        assert program == "torchprof-tui"
        assert read(line) == options
    assert built[0][1] == "torchprof-tui table 'a b' --of=kernels --step=0 --limit=5 --json"
