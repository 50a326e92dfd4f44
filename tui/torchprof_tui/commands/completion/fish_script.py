"""Format the completion script for fish."""

from __future__ import annotations

from collections.abc import Sequence

from torchprof_tui.commands.completion.words import OPEN, CommandWords, Option, Value, ValueKind

PROGRAM = "torchprof-tui"

_NO_COMMAND = "not __fish_seen_subcommand_from $__torchprof_tui_commands"


def format_script(commands: Sequence[CommandWords], samples: Sequence[str]) -> str:
    """Return the script."""
    named = [command for command in commands if command.name != OPEN]
    lines = [
        "# fish completion of torchprof-tui, written by `torchprof-tui completion fish`.",
        f"set -g __torchprof_tui_commands {' '.join(command.name for command in named)}",
        f"set -g __torchprof_tui_samples {' '.join(map(_quote, samples))}",
    ]
    lines += [
        f"complete -c {PROGRAM} -n __fish_use_subcommand -a {command.name} -d {_quote(command.help)}"
        for command in named
    ]
    for command in commands:
        condition = _NO_COMMAND if command.name == OPEN else f"__fish_seen_subcommand_from {command.name}"
        lines += [_format_option(condition, option) for option in command.options]
        lines += _format_positional(condition, command.positional)
    return "\n".join(lines) + "\n"


def _format_option(condition: str, option: Option) -> str:
    words = [f"complete -c {PROGRAM} -n {_quote(condition)}"]
    words += [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags]
    if option.value is not None:
        words.append(_format_value(option.value))
    if option.help:
        words.append(f"-d {_quote(option.help)}")
    return " ".join(words)


def _format_value(value: Value) -> str:
    """Return the words for the value of an option: required, from a list, a file, or free text."""
    if value.kind is ValueKind.CHOICE:
        return f"-x -a {_quote(' '.join(value.choices))}"
    if value.kind is ValueKind.TRACE:
        return "-r -F -a '$__torchprof_tui_samples'"
    return "-r -F" if value.kind is ValueKind.FILE else "-x"


def _format_positional(condition: str, value: Value | None) -> list[str]:
    start = f"complete -c {PROGRAM} -n {_quote(condition)}"
    if value is None or value.kind is ValueKind.TEXT:
        return [f"{start} -f"]
    if value.kind is ValueKind.CHOICE:
        return [f"{start} -f -a {_quote(' '.join(value.choices))}"]
    if value.kind is ValueKind.TRACE:
        return [f"{start} -F -a '$__torchprof_tui_samples'"]
    return [f"{start} -F -a {_quote(' '.join(value.choices))}" if value.choices else f"{start} -F"]


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
