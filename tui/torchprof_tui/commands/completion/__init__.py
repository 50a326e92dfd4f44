"""Declare the options of `torchprof-tui completion`."""

from __future__ import annotations

from typing import Literal

from torchprof_tui.commands.common.options import Options, option


class CompletionOptions(Options):
    epilog = """\
for this session:
  bash  source <(torchprof-tui completion bash)
  zsh   source <(torchprof-tui completion zsh)
  fish  torchprof-tui completion fish | source

for good:
  bash  torchprof-tui completion bash > ~/.local/share/bash-completion/completions/torchprof-tui
  zsh   torchprof-tui completion zsh > FOLDER/_torchprof-tui   (a folder of $fpath)
  fish  torchprof-tui completion fish > ~/.config/fish/completions/torchprof-tui.fish
"""

    shell: Literal["bash", "zsh", "fish"] = option("the shell to complete in", "bash|zsh|fish", is_positional=True)
