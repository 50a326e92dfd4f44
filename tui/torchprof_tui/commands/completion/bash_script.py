"""Format the completion script for bash 3.2 and newer."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from torchprof_tui.commands.completion.words import OPEN, CommandWords, Value, join_flags

# bash splits words at `:` and `=`, and replaces only the part behind the last one. So the word is taken from the line
# itself, and what stands before the last separator is removed from the answers.
_FUNCTION = """\
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


def format_script(commands: Sequence[CommandWords], samples: Sequence[str]) -> str:
    """Return the script."""
    names = [command.name for command in commands if command.name != OPEN]
    flags = [f"          {command.name}) {_assign(join_flags(command.options))} ;;" for command in commands]
    positionals = [f"          {command.name}) {_describe_value(command.positional)} ;;" for command in commands]
    option_values = [
        f"    {' | '.join(shlex.quote(f'{command.name} {flag}') for flag in option.flags)})"
        f" {_describe_value(option.value)} ;;"
        for command in commands
        for option in command.options
        if option.value is not None
    ]
    replacements = {
        "@COMMANDS@": " | ".join(names),
        "@COMMAND_WORDS@": " ".join(names),
        "@SAMPLES@": " ".join(samples),
        "@FLAGS@": "\n".join(flags),
        "@POSITIONALS@": "\n".join(positionals),
        "@OPTION_VALUES@": "\n".join(option_values),
    }
    script = _FUNCTION
    for place, text in replacements.items():
        script = script.replace(place, text)
    return f"# bash completion of torchprof-tui, written by `torchprof-tui completion bash`.\n{script}"


def _describe_value(value: Value | None) -> str:
    if value is None:
        return "kind=none"
    kind = f"kind={value.kind.value}"
    return f"{kind}; {_assign(value.choices)}" if value.choices else kind


def _assign(words: Sequence[str]) -> str:
    return f"candidates={shlex.quote(' '.join(words))}"
