"""Define the arguments of `torchprof-tui completion`."""

from __future__ import annotations

import argparse

SHELLS = ("bash", "zsh", "fish")

EPILOG = """\
for this session:
  bash  source <(torchprof-tui completion bash)
  zsh   source <(torchprof-tui completion zsh)
  fish  torchprof-tui completion fish | source

for good:
  bash  torchprof-tui completion bash > ~/.local/share/bash-completion/completions/torchprof-tui
  zsh   torchprof-tui completion zsh > FOLDER/_torchprof-tui   (a folder of $fpath)
  fish  torchprof-tui completion fish > ~/.config/fish/completions/torchprof-tui.fish
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("shell", choices=SHELLS, metavar="bash|zsh|fish", help="the shell to complete in")
