"""Format the completion script for zsh."""

from __future__ import annotations

from collections.abc import Sequence

from torchprof_tui.commands.completion.words import OPEN, CommandWords, Option, Value, ValueKind

_FRAME = """\
#compdef torchprof-tui
# zsh completion of torchprof-tui, written by `torchprof-tui completion zsh`.

_torchprof_tui_traces() {
  local -a samples=(@SAMPLES@)
  _alternative 'files:trace:_files' 'samples:sample:compadd -a samples'
}

_torchprof_tui_commands() {
  local -a commands=(
@COMMANDS@
  )
  _describe -t commands command commands
}

_torchprof_tui_workloads() {
  _alternative 'workloads:workload:(@WORKLOADS@)' 'files:file:_files'
}

_torchprof_tui_first() {
  _torchprof_tui_commands
  _torchprof_tui_traces
}

_torchprof_tui() {
  local curcontext="$curcontext"
  if (( CURRENT > 2 )); then
    case "${words[2]}" in
@CASES@
    esac
  fi
  _arguments -s \\
@OPEN@
}

if [ "${funcstack[1]}" = _torchprof_tui ]; then
  _torchprof_tui "$@"
elif (( ! $+functions[compdef] )); then
  autoload -Uz compinit && compinit
  compdef _torchprof_tui torchprof-tui
else
  compdef _torchprof_tui torchprof-tui
fi
"""


def format_script(commands: Sequence[CommandWords], samples: Sequence[str]) -> str:
    """Return the script."""
    cases = []
    for command in commands:
        if command.name == OPEN:
            first = ["'1:trace or command:_torchprof_tui_first'", "'*:trace:_torchprof_tui_traces'"]
            opened = _format_arguments(command, "    ", first)
            continue
        positional = [] if command.positional is None else [_quote(f"*{_format_value('', command.positional)}")]
        cases += [
            f"      {command.name})",
            "        shift words; (( CURRENT-- ))",
            "        _arguments -s \\",
            f"{_format_arguments(command, ' ' * 10, positional)}",
            "        return ;;",
        ]
    workloads = [
        " ".join(command.positional.choices)
        for command in commands
        if command.positional is not None and command.positional.kind is ValueKind.COMMAND
    ]
    names = [f"    {_quote(f'{_escape(command.name)}:{command.help}')}" for command in commands if command.name != OPEN]
    replacements = {
        "@SAMPLES@": " ".join(_quote(name) for name in samples),
        "@WORKLOADS@": " ".join(workloads),
        "@COMMANDS@": "\n".join(names),
        "@CASES@": "\n".join(cases),
        "@OPEN@": opened,
    }
    script = _FRAME
    for place, text in replacements.items():
        script = script.replace(place, text)
    return script


def _format_arguments(command: CommandWords, indent: str, positional: list[str]) -> str:
    lines = [_quote(line) for option in command.options for line in _format_option(option)]
    return " \\\n".join(f"{indent}{line}" for line in [*lines, *positional])


def _format_option(option: Option) -> list[str]:
    """Return one specification of `_arguments` for each flag."""
    help_text = f"[{_escape(option.help)}]" if option.help else ""
    others = f"({' '.join(option.flags)})" if len(option.flags) > 1 else ""
    if option.value is None:
        return [f"{others}{flag}{help_text}" for flag in option.flags]
    value = _format_value(option.flags[-1].lstrip("-"), option.value)
    # A long option takes its value behind `=` or as the next word, a short one only as the next word.
    return [f"{others}{flag}{'=' if flag.startswith('--') else '+'}{help_text}{value}" for flag in option.flags]


def _format_value(name: str, value: Value) -> str:
    label = name or "argument"
    if value.kind is ValueKind.TRACE:
        return f":{label}:_torchprof_tui_traces"
    if value.kind is ValueKind.FILE:
        return f":{label}:_files"
    if value.kind is ValueKind.COMMAND:
        return f":{label}:_torchprof_tui_workloads"
    if value.kind is ValueKind.CHOICE:
        return f":{label}:({' '.join(value.choices)})"
    return f":{label}: "


def _escape(text: str) -> str:
    for character in "\\:[]":
        text = text.replace(character, f"\\{character}")
    return text


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
