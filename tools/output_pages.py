"""Write the output of commands into the pages of docs/, below each comment with a command.

`python -m tools.output_pages [PAGE …]`. A comment has the words behind `torchprof-tui`, then optionally `| head -N`,
`| grep TEXT` or `; echo $?`:

    <!-- output: check sample:train_gpt_starved | head -8 -->

The commands of a page run one after the other in one temporary folder, so one can read what another wrote. It has a
link to `tests`, and `leaky.json`: a sample with environment variables in its metadata, none of them real.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from torchprof_samples import __file__ as samples_file
from torchprof_tui.cli import main as run_program

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SAMPLES = Path(samples_file).resolve().parent

_BLOCK = re.compile(r"(<!-- output: (.*?) -->\n)(?:```\n.*?^```\n)?", re.DOTALL | re.MULTILINE)
_STATUS = "; echo $?"
_WITHOUT_CACHE = frozenset(
    ("info", "table", "check", "diff", "chain", "critical-path", "what-if", "memory", "slice", "export", "snapshot")
)

_ENVIRONMENT = '"env": {"USER": "someone", "HF_TOKEN": "hf_made_up", "WANDB_API_KEY": "made up"}, '


def find_pages() -> list[Path]:
    """Return the pages of docs/ that have output."""
    return [page for page in sorted(DOCS.rglob("*.md")) if _BLOCK.search(page.read_text(encoding="utf-8"))]


def build_page(text: str) -> str:
    """Replace the block below each comment by what the program prints now."""
    with _enter_folder():
        return _BLOCK.sub(
            lambda match: f"{match[1]}```\n$ torchprof-tui {match[2]}\n{print_output(match[2])}```\n", text
        )


def print_output(command: str) -> str:
    """Return what a command prints to a pipe, with short paths of samples; raise SystemExit where it fails."""
    words, wants_status, _ = command.partition(_STATUS)
    words, *filters = words.split(" | ")
    name, *rest = shlex.split(words)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = run_program([name, *rest, *(["--no-cache"] if name in _WITHOUT_CACHE else [])])
    lines = [line.rstrip() for line in out.getvalue().replace(f"{SAMPLES}{os.sep}", "…/").splitlines()]
    failed = status > 1
    for each in filters:
        lines = _filter_lines(lines, each)
        status = 0 if lines else 1
    if failed or (status and not wants_status):
        raise SystemExit(f"{command}: exit status {status}\n{out.getvalue()}")
    return "".join(f"{line}\n" for line in [*lines, *([str(status)] if wants_status else [])])


def _filter_lines(lines: list[str], command: str) -> list[str]:
    program, argument = shlex.split(command)
    if program == "head":
        return lines[: -int(argument)]
    if program == "grep":
        return [line for line in lines if argument in line]
    raise SystemExit(f"{command}: only head -N and grep TEXT are known")


@contextlib.contextmanager
def _enter_folder() -> Iterator[None]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            Path("tests").symlink_to(ROOT / "tests")
            _write_leaky_trace(Path("leaky.json"))
            yield
        finally:
            os.chdir(before)


def _write_leaky_trace(path: Path) -> None:
    """Write a sample as if its launcher had added its environment to the metadata."""
    text = gzip.decompress((SAMPLES / "geglu_mlp_eager.pt.trace.json.gz").read_bytes()).decode()
    path.write_text(text.replace("{", "{" + _ENVIRONMENT, 1), encoding="utf-8")


def main(names: list[str]) -> None:
    """Write the named pages, or all that have output."""
    for page in [Path(name) for name in names] or find_pages():
        text = page.read_text(encoding="utf-8")
        page.write_text(build_page(text), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
