"""Run commands in this process, as `torchprof-tui` would, and check what they print and write."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.hostile.cases import FOLDER, TRACE, CommandCase, Inputs
from tests.hostile.oracle import FindingError, check_errors, check_json, check_status, check_svg, check_text
from tests.hostile.world import World, build_world
from torchprof_tui.cli import main
from torchprof_tui.trace.core.errors import TraceError, format_error

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("info", TRACE),
    ("info", TRACE, "--json"),
    ("info", FOLDER),
    ("info", "box:runs"),
    ("info", "box:runs", "--json"),
    ("info", "box:runs/*.json"),
    ("info", "box:a.json"),
    ("check", TRACE),
    ("check", TRACE, "--json"),
    ("check", TRACE, "--markdown"),
    ("check", FOLDER),
    ("table", TRACE, "--json"),
    ("table", TRACE, "--by", "shape", "--flops"),
    ("table", TRACE, "--of", "kernels"),
    ("table", TRACE, "--of", "copies"),
    ("table", TRACE, "--of", "memory"),
    ("table", TRACE, "--of", "collectives"),
    ("table", TRACE, "--by", "step", "--csv"),
    ("table", FOLDER, "--of", "arrivals", "--markdown"),
    ("diff", TRACE, TRACE, "--json"),
    ("diff", TRACE, f"{FOLDER}/b.json"),
    ("diff", f"{FOLDER}/b.json", TRACE, "--json", "--by", "class", "--fail-on", "+5%"),
    ("diff", TRACE, f"{FOLDER}/b.json", "--markdown", "--by", "module"),
    ("diff", TRACE, "box:a.json", "--by", "kernel"),
    ("diff", FOLDER, FOLDER, "--steps", "0..1/1..2"),
    ("chain", TRACE, "--event", "aten::mm"),
    ("chain", TRACE, "--event", "ampere_sgemm_128x64_nn", "--json"),
    ("critical-path", TRACE),
    ("critical-path", TRACE, "--json", "--step", "1"),
    ("what-if", TRACE, "--set", "cpu=0.5"),
    ("what-if", TRACE, "--set", "gpu=0.5", "--json"),
    ("learn", TRACE, "--text"),
    ("learn", FOLDER, "--text"),
    ("slice", TRACE, "--range", "0:300", "-o", "{root}/out/s.json"),
    ("slice", TRACE, "--range", "0:300", "-o", "{root}/out/s.json.gz", "--json"),
    ("slice", TRACE, "--range", "0:300", "-o", "{root}/missing/s.json"),
    ("export", TRACE, "-o", "{root}/out/e.csv"),
    ("export", TRACE, "-o", "{root}/out/e.parquet", "--json"),
    ("export", TRACE, "-o", "{root}/out/e.json"),
    ("export", FOLDER, "-o", "{root}/out/e.json.gz", "--keep-metadata"),
    ("export", TRACE, "--roofline"),
    ("export", TRACE, "--roofline", "-o", "{root}/out/r.svg"),
    ("memory", TRACE, "-o", "{root}/out/m.svg"),
    ("diff", TRACE, f"{FOLDER}/b.json", "-o", "{root}/out/w.svg"),
    ("snapshot", "-o", "{root}/out/p.svg"),
    ("snapshot", TRACE, "--keys", "n,n,k,c", "-o", "{root}/out/p.svg"),
    ("snapshot", TRACE, "--size", "1x1", "--keys", "t,down", "-o", "{root}/out/p.txt"),
    ("cache",),
    ("cache", "--json"),
    ("cache", "--clear"),
    ("run", "--no-open", "-o", "{root}/out/runs", "--json", "--", "python", "x.py"),
    ("open", TRACE),
    ("--help",),
    ("--version",),
)
"""Every command, on the trace, the folder of the run, and what the host `box` answers."""

_JOINER = re.compile(r"(?<=[@#])\u2060(?=\w)")

CACHED = frozenset({"info", "check", "table", "diff", "chain", "critical-path", "what-if", "slice", "snapshot"})
"""Commands that take `--no-cache`."""


@dataclass(frozen=True, slots=True)
class Printed:
    status: int
    out: str
    err: str


def run_command_case(case: CommandCase) -> Printed:
    """Run one command in surroundings of its own. Raises FindingError, or an exception of the program."""
    with build_world(case.inputs, named_outputs=case.words[0] == "run") as world:
        prepare_cache(world, case.inputs)
        words = [world.expand(word) for word in case.words]
        if case.inputs.cache_flips is None and words[0] in CACHED:
            words.append("--no-cache")
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            printed = _call(words, case.encoding)
        check_status(printed.status)
        # Markdown has word joiners of its own, after @ and #; one of a name would be escaped.
        check_text(_JOINER.sub("", printed.out) if "--markdown" in words else printed.out, "stdout")
        check_errors(printed.err, printed.status)
        if "--json" in words and printed.status != 2:
            check_json(printed.out)
        _check_outputs(world.output, printed.status)
    return printed


def prepare_cache(world: World, inputs: Inputs) -> None:
    """Fill the cache with the trace, and flip the bits of its entry that the case names."""
    if inputs.cache_flips is None:
        return
    _call(["info", TRACE], "utf-8")
    files = sorted(path for path in (world.root / "cache").rglob("*") if path.is_file() and path.stat().st_size)
    for file, offset, bit in inputs.cache_flips if files else ():
        path = files[file % len(files)]
        data = bytearray(path.read_bytes())
        data[offset % len(data)] ^= 1 << bit
        path.write_bytes(data)


def _call(words: list[str], encoding: str) -> Printed:
    """Call the program with streams of this encoding. Exceptions that it would report as a bug pass through."""
    with captured(encoding) as (out, err):
        try:
            status = main([*words, "--debug"] if words[0] not in ("--version", "--help", "run") else words)
        except SystemExit as exit_:  # argparse's own: --help
            status = exit_.code if isinstance(exit_.code, int) else 2
        except (TraceError, OSError) as error:  # refusals, which --debug raises
            line = format_error(error)
            if not line.strip() or "\n" in line:
                raise FindingError(f"a refusal that is no line: {line!r}") from error
            status = 2
            sys.stderr.write("".join(c if c.isprintable() else "·" for c in line) + "\n")
        sys.stdout.flush()
        sys.stderr.flush()
        return Printed(status, out.getvalue().decode(encoding), err.getvalue().decode(encoding))


@contextmanager
def captured(encoding: str) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    """Replace stdout and stderr by streams of this encoding."""
    before = sys.stdout, sys.stderr
    out, err = io.BytesIO(), io.BytesIO()
    sys.stdout = io.TextIOWrapper(out, encoding, write_through=True)
    sys.stderr = io.TextIOWrapper(err, encoding, errors="backslashreplace", write_through=True)
    try:
        yield out, err
    finally:
        sys.stdout, sys.stderr = before


def _check_outputs(folder: Path, status: int) -> None:
    """What was written where the user said: complete, of its kind, and nothing where the call was refused."""
    for path in folder.rglob("*"):
        if path.name.startswith("."):
            raise FindingError(f"a temporary file is left: {path.name}")
        if status == 2 and path.parent == folder and path.is_file():
            raise FindingError(f"refused, and written: {path.name}")
        if path.suffix == ".svg":
            check_svg(path.read_text(encoding="utf-8"))
        elif path.suffix == ".txt" and path.parent == folder:
            check_text(path.read_text(encoding="utf-8"), path.name)
