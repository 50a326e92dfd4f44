"""Write the output of `diff` into docs/diff.md, below each comment with its arguments: `python -m tools.diff_page`."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from pathlib import Path

from torchprof_tui.cli import main

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "diff.md"

_BLOCK = re.compile(r"(<!-- output: (.*?) -->\n)(?:```\n.*?^```\n)?", re.DOTALL | re.MULTILINE)


def build_page(text: str) -> str:
    """Replace the block below each comment by what the program prints now."""
    return _BLOCK.sub(
        lambda match: f"{match[1]}```\n$ torchprof-tui diff {match[2]}\n{print_diff(match[2])}```\n", text
    )


def print_diff(arguments: str) -> str:
    """Return what `diff` prints for these arguments; paths are relative to the repository."""
    out, before = io.StringIO(), Path.cwd()
    os.chdir(ROOT)
    try:
        with contextlib.redirect_stdout(out):
            status = main(["diff", *shlex.split(arguments), "--no-cache"])
    finally:
        os.chdir(before)
    if status:
        raise SystemExit(f"diff {arguments}: exit status {status}")
    return out.getvalue()


if __name__ == "__main__":
    PAGE.write_text(build_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
