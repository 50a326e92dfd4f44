"""Make the README's pictures again: `python docs/make_pictures.py`. They are snapshots of the real app."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent

PICTURES = {
    "start": ["--size", "140x36"],  # first: before any trace is among the recent ones
    # the heaviest kernel beneath a search's hit: the chain above it lit, the cheatsheet beside the chain
    "explorer": [
        "sample:matmul_add_64_cold_eager",
        "--size",
        "172x40",
        "--keys",
        "slash,a,t,e,n,colon,colon,m,m,enter,l",
    ],
    "kernel": ["sample:attention_flash", "--size", "140x44", "--keys", "slash,f,l,a,s,h,enter,l,down,down,k"],
    "cheatsheet": ["sample:train_gpt_starved", "--size", "140x42", "--keys", "c,down,enter"],
    # both ranks opened, the cheatsheet on what they do to each other
    "ranks": ["sample:train_gpt_2ranks", "--size", "150x46", "--keys", "c,v,v"],
    # the compiled twin as B, the largest difference selected
    "diff": [
        "sample:geglu_mlp_eager",
        "--size",
        "140x44",
        "--keys",
        ",".join(["D", *"sample", "colon", *"geglu", "underscore", *"mlp", "underscore", *"compile", "enter", "n"]),
    ],
    "table": ["sample:train_gpt_stack_memory", "--size", "140x40", "--keys", "t,down,down"],
}
"""Picture → arguments of `torchprof-tui snapshot`."""


def main() -> None:
    # The start screen lists recent traces and those around: in an empty folder, so that none are the author's own.
    with tempfile.TemporaryDirectory() as empty:
        environment = {**os.environ, "XDG_STATE_HOME": empty}
        for name, arguments in PICTURES.items():
            picture = FOLDER / f"{name}.svg"
            command = [sys.executable, "-m", "torchprof_tui", "snapshot", *arguments, "-o", str(picture)]
            subprocess.run(command, check=True, cwd=empty, env=environment)
            print(f"docs/{picture.name}: {picture.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()
