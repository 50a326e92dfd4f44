"""Print a completion script for a shell: `torchprof-tui completion bash|zsh|fish`."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import Literal

from torchprof_samples import SAMPLES
from torchprof_tui.commands.common.parsers import PROGRAM, build_parser, list_commands
from torchprof_tui.commands.completion import CompletionOptions
from torchprof_tui.runs.recording_request import WORKLOADS
from torchprof_tui.trace.core.records import record

OPEN = "open"  # the command without a word of its own: `torchprof-tui TRACE`

_FILE_METAVARS = {"OUT", "FILE", "PATH", "FOLDER"}
_TRACE_METAVARS = {"TRACE", "A", "B", "LAST|TRACE"}


ValueKind = Literal["choice", "file", "trace", "command", "text"]
"""What a value is: one of a list, a file, a trace (a file or a sample), a command line, or free text."""


@record
class Value:
    """The value of an option or of a positional argument; `choices` of a choice or command."""

    kind: ValueKind
    choices: tuple[str, ...] = ()


@record
class Option:
    """One option: its flags, a line of help, and its value; None for a switch."""

    flags: tuple[str, ...]
    help: str
    value: Value | None


@record
class CommandWords:
    """One command: its name (OPEN for none), a line of help, its options, and what its other arguments are."""

    name: str
    help: str
    options: tuple[Option, ...]
    positional: Value | None


def read_commands() -> list[CommandWords]:
    """Read what the parsers accept, the program without a command first."""
    commands, found = list_commands(), []
    for name in (OPEN, *commands):
        parser, options = build_parser(name), []
        for action in parser._actions:
            if action.option_strings:
                value = None if action.nargs == 0 else _read_value(action)
                options.append(Option(tuple(action.option_strings), expand_help(parser, action), value))
        positional = next((_read_value(action) for action in parser._actions if not action.option_strings), None)
        found.append(CommandWords(name, commands.get(name, ""), tuple(options), positional))
    return found


def _read_value(action: argparse.Action) -> Value:
    if action.choices is not None:
        return Value("choice", tuple(map(str, action.choices)))
    if action.nargs == argparse.REMAINDER:
        return Value("command", tuple(WORKLOADS))
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if metavar in _TRACE_METAVARS:
        return Value("trace")
    return Value("file" if metavar in _FILE_METAVARS else "text")


def expand_help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return the help of an option on one line, as `--help` prints it."""
    if not action.help or action.help == argparse.SUPPRESS:
        return ""
    return " ".join(parser._get_formatter()._expand_help(action).split())


def run(options: CompletionOptions) -> int:
    format_script = {"bash": format_bash, "zsh": format_zsh, "fish": format_fish}[options.shell]
    samples = [f"sample:{sample.name}" for sample in SAMPLES if sample.path.exists()]
    print(format_script(read_commands(), samples), end="")
    return 0


def _fill(template: str, **texts: str) -> str:
    """Replace each `@NAME@` of a template by its text."""
    for name, text in texts.items():
        template = template.replace(f"@{name}@", text)
    return template


# bash splits words at `:` and `=`, and replaces only the part behind the last one. So the word is taken from the line
# itself, and what stands before the last separator is removed from the answers.
_BASH = """\
_torchprof_tui() {
  local line word command previous index candidates kind prefix
  line="${COMP_LINE:0:COMP_POINT}"
  word="${line##*[[:space:]]}"
  COMPREPLY=()
  line="${line%"$word"}"
  local -a before=()
  read -r -a before <<< "$line"
  previous="${before[${#before[@]}-1]}"
  command=open
  case "${before[1]}" in
    @COMMANDS@) command="${before[1]}" ;;
  esac
  for ((index = 1; index < ${#before[@]}; index++)); do
    if [ "${before[index]}" = -- ]; then
      COMPREPLY=($(compgen -f -- "$word"))
      return
    fi
  done
  prefix=
  case "$word" in
    --*=*) previous="${word%%=*}"; prefix="$previous="; word="${word#*=}" ;;
  esac
  kind=
  candidates=
  case "$command $previous" in
@OPTION_VALUES@
  esac
  if [ -z "$kind" ] && [ -z "$prefix" ]; then
    case "$word" in
      -*)
        case "$command" in
@FLAGS@
        esac
        kind=choice ;;
      *)
        case "$command" in
@POSITIONALS@
        esac
        [ ${#before[@]} -eq 1 ] && candidates="$candidates @COMMAND_WORDS@" ;;
    esac
  fi
  case "$kind" in
    trace) candidates="$candidates @SAMPLES@" ;;
  esac
  COMPREPLY=($(compgen -W "$candidates" -- "$word"))
  case "$kind" in
    trace | file | command)
      compopt -o filenames 2>/dev/null
      local IFS=$'\\n'
      COMPREPLY+=($(compgen -f -- "$word")) ;;
  esac
  # What bash replaces begins behind the last `:` or `=` of the word.
  word="$prefix$word"
  case "$COMP_WORDBREAKS" in
    *:*) case "$word" in *:*) prefix="${word%"${word##*:}"}"; COMPREPLY=("${COMPREPLY[@]#"$prefix"}") ;; esac ;;
  esac
  return 0
}
complete -F _torchprof_tui torchprof-tui
"""


def format_bash(commands: Sequence[CommandWords], samples: Sequence[str]) -> str:
    """Return the script."""
    names = [command.name for command in commands if command.name != OPEN]
    flags_of = {command.name: [flag for option in command.options for flag in option.flags] for command in commands}
    flags = [f"          {name}) {_assign_candidates(words)} ;;" for name, words in flags_of.items()]
    positionals = [f"          {command.name}) {_describe_bash_value(command.positional)} ;;" for command in commands]
    option_values = [
        f"    {' | '.join(shlex.quote(f'{command.name} {flag}') for flag in option.flags)})"
        f" {_describe_bash_value(option.value)} ;;"
        for command in commands
        for option in command.options
        if option.value is not None
    ]
    script = _fill(
        _BASH,
        COMMANDS=" | ".join(names),
        COMMAND_WORDS=" ".join(names),
        SAMPLES=" ".join(samples),
        FLAGS="\n".join(flags),
        POSITIONALS="\n".join(positionals),
        OPTION_VALUES="\n".join(option_values),
    )
    return f"# bash completion of torchprof-tui, written by `torchprof-tui completion bash`.\n{script}"


def _describe_bash_value(value: Value | None) -> str:
    if value is None:
        return "kind=none"
    kind = f"kind={value.kind}"
    return f"{kind}; {_assign_candidates(value.choices)}" if value.choices else kind


def _assign_candidates(words: Sequence[str]) -> str:
    return f"candidates={shlex.quote(' '.join(words))}"


_ZSH = """\
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


def format_zsh(commands: Sequence[CommandWords], samples: Sequence[str]) -> str:
    """Return the script."""
    cases = []
    for command in commands:
        if command.name == OPEN:
            first = ["'1:trace or command:_torchprof_tui_first'", "'*:trace:_torchprof_tui_traces'"]
            opened = _format_zsh_arguments(command, "    ", first)
            continue
        positional = [] if command.positional is None else [_quote_zsh(f"*{_format_zsh_value('', command.positional)}")]
        cases += [
            f"      {command.name})",
            "        shift words; (( CURRENT-- ))",
            "        _arguments -s \\",
            f"{_format_zsh_arguments(command, ' ' * 10, positional)}",
            "        return ;;",
        ]
    workloads = [
        " ".join(command.positional.choices)
        for command in commands
        if command.positional is not None and command.positional.kind == "command"
    ]
    names = [
        f"    {_quote_zsh(f'{_escape_zsh(command.name)}:{command.help}')}"
        for command in commands
        if command.name != OPEN
    ]
    return _fill(
        _ZSH,
        SAMPLES=" ".join(_quote_zsh(name) for name in samples),
        WORKLOADS=" ".join(workloads),
        COMMANDS="\n".join(names),
        CASES="\n".join(cases),
        OPEN=opened,
    )


_ZSH_VALUES = {
    "trace": "_torchprof_tui_traces",
    "file": "_files",
    "command": "_torchprof_tui_workloads",
}


def _format_zsh_arguments(command: CommandWords, indent: str, positional: list[str]) -> str:
    lines = [_quote_zsh(line) for option in command.options for line in _format_zsh_option(option)]
    return " \\\n".join(f"{indent}{line}" for line in [*lines, *positional])


def _format_zsh_option(option: Option) -> list[str]:
    help_text = f"[{_escape_zsh(option.help)}]" if option.help else ""
    others = f"({' '.join(option.flags)})" if len(option.flags) > 1 else ""
    if option.value is None:
        return [f"{others}{flag}{help_text}" for flag in option.flags]
    value = _format_zsh_value(option.flags[-1].lstrip("-"), option.value)
    # A long option takes its value behind `=` or as the next word, a short one only as the next word.
    return [f"{others}{flag}{'=' if flag.startswith('--') else '+'}{help_text}{value}" for flag in option.flags]


def _format_zsh_value(name: str, value: Value) -> str:
    choices = f"({' '.join(value.choices)})" if value.kind == "choice" else " "
    return f":{name or 'argument'}:{_ZSH_VALUES.get(value.kind, choices)}"


def _escape_zsh(text: str) -> str:
    for character in "\\:[]":
        text = text.replace(character, f"\\{character}")
    return text


def _quote_zsh(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


_FISH_VALUES = {"trace": "-r -F -a '$__torchprof_tui_samples'", "file": "-r -F"}
"""Words for the value of an option: required and a file; others are free text."""

_NO_COMMAND = "not __fish_seen_subcommand_from $__torchprof_tui_commands"


def format_fish(commands: Sequence[CommandWords], samples: Sequence[str]) -> str:
    """Return the script."""
    named = [command for command in commands if command.name != OPEN]
    lines = [
        "# fish completion of torchprof-tui, written by `torchprof-tui completion fish`.",
        f"set -g __torchprof_tui_commands {' '.join(command.name for command in named)}",
        f"set -g __torchprof_tui_samples {' '.join(map(_quote_fish, samples))}",
    ]
    lines += [
        f"complete -c {PROGRAM} -n __fish_use_subcommand -a {command.name} -d {_quote_fish(command.help)}"
        for command in named
    ]
    for command in commands:
        condition = _NO_COMMAND if command.name == OPEN else f"__fish_seen_subcommand_from {command.name}"
        start = f"complete -c {PROGRAM} -n {_quote_fish(condition)}"
        for option in command.options:
            words = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags]
            if option.value is not None:
                kind = option.value.kind
                listed = f"-x -a {_quote_fish(' '.join(option.value.choices))}"
                words.append(listed if kind == "choice" else _FISH_VALUES.get(kind, "-x"))
            if option.help:
                words.append(f"-d {_quote_fish(option.help)}")
            lines.append(" ".join([start, *words]))
        value = command.positional or Value("text")
        listed = f" -a {_quote_fish(' '.join(value.choices))}" if value.choices else ""
        samples_of_trace = " -a '$__torchprof_tui_samples'" if value.kind == "trace" else ""
        has_files = value.kind not in ("text", "choice")
        lines.append(f"{start} {'-F' if has_files else '-f'}{listed}{samples_of_trace}")
    return "\n".join(lines) + "\n"


def _quote_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
