"""Print a completion script for a shell: `torchprof-tui completion bash|zsh|fish`."""

from __future__ import annotations

from torchprof_tui.commands.common.parsers import build_parser, list_commands
from torchprof_tui.commands.completion import bash_script, fish_script, zsh_script
from torchprof_tui.commands.completion.options import CompletionOptions
from torchprof_tui.commands.completion.words import list_sample_names, read_commands

FORMATS = {
    "bash": bash_script.format_script,
    "zsh": zsh_script.format_script,
    "fish": fish_script.format_script,
}


def run(options: CompletionOptions) -> int:
    commands = read_commands(list_commands(), build_parser)
    print(FORMATS[options.shell](commands, list_sample_names()), end="")
    return 0
