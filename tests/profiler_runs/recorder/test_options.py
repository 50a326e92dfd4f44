"""Parse the harness's command line, without torch."""

from __future__ import annotations

import dataclasses

import pytest

from torchprof_runs.recorder.options import Options, UsageError, parse_options


def test_options_end_where_the_program_begins() -> None:
    options = parse_options(
        ["--active", "5", "--with-stack", "train.py", "--active", "7", "-m", "x", "--", "--for", "1"]
    )
    assert options.active == 5
    assert options.with_stack
    assert options.command == ("train.py", "--active", "7", "-m", "x", "--", "--for", "1")
    assert not options.module


def test_module_takes_everything_after_it() -> None:
    options = parse_options(["--wait", "0", "-m", "pkg.train", "--wait", "3", "-m", "y"])
    assert options.module
    assert options.wait == 0
    assert options.command == ("pkg.train", "--wait", "3", "-m", "y")


def test_double_dash_before_the_program() -> None:
    assert parse_options(["--repeat", "2", "--", "train.py", "--lr", "1"]).command == ("train.py", "--lr", "1")


def test_windows_of_time() -> None:
    options = parse_options(["--after", "1.5", "--for", "2", "train.py"])
    assert (options.after, options.duration, options.is_timed) == (1.5, 2.0, True)
    assert not parse_options(["train.py"]).is_timed


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "no program"),
        (["--active", "3"], "no program"),
        (["--active", "0", "x.py"], "not 1 or more"),
        (["--wait", "-1", "x.py"], "negative"),
        (["--wait", "one", "x.py"], "--wait"),
        (["--step", "optimiser", "x.py"], "MODULE:FUNCTION"),
        (["--step", "train:", "x.py"], "MODULE:FUNCTION"),
        (["--step", "optimizer", "--for", "3", "x.py"], "not both"),
        (["--step", "none", "--active", "3", "x.py"], "--step none has none"),
        (["--after", "3", "--repeat", "2", "x.py"], "--step none has none"),
        (["--for", "0", "x.py"], "records nothing"),
        (["--after", "-1", "x.py"], "seconds"),
        (["--after", "nan", "x.py"], "seconds"),
        (["--nproc", "0", "x.py"], "not 1 or more"),
        (["--then", "wait", "x.py"], "--then"),
        (["--nonsense", "x.py"], "--nonsense"),
        (["--act", "3", "x.py"], "--act"),
    ],
)
def test_a_wrong_call_is_one_line(argv: list[str], says: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_options(argv)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_rank_is_started_with_the_same_options() -> None:
    """as_argv leaves out --nproc and the command, and nothing else."""
    values = {
        "wait": 3, "warmup": 0, "active": 2, "repeat": 0, "record_shapes": True, "profile_memory": True,
        "with_stack": True, "with_flops": True, "with_modules": True, "step": "a.b:c", "then": "finish",
        "output": "else where", "preflight": False, "table": False, "max_memory": 5,
    }  # fmt: skip
    options = Options(command=("train.py", "-x"), nproc=4, **values)
    parsed = parse_options([*options.as_argv(), *options.command])
    assert parsed == dataclasses.replace(options, nproc=None)
    forced = Options(command=("train.py",), table=True)
    assert parse_options([*forced.as_argv(), *forced.command]) == forced
    timed = Options(command=("train.py",), after=1.0, duration=0.25)
    assert parse_options([*timed.as_argv(), *timed.command]) == timed
