"""Record kinds of faults × models on a GPU, and judge what `check` says of them.

    python -m tools.fault_bench record --out DIR [--models A,B] [--kinds A,B] [--seconds LIMIT] [--resume]
    python -m tools.fault_bench judge DIR --half building|held-out|third …

`record` writes two traces per cell and cells.jsonl; it needs torch, and the packages of the models. `judge` prints the
Markdown of benchmarks/fault_bench.md; it needs torchprof-tui. `--device cpu` runs tiny versions, which show that the
programs work and measure nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .judgement import format_report, judge_cells
from .kinds import HALVES, KINDS, MODELS, TEST_MODEL
from .recording import read_cells, record


class OneLineParser(argparse.ArgumentParser):
    """Report a wrong argument in one line, without the usage."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"fault_bench: {message}\n")


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse and check the arguments; exits with status 2 and one line if they are wrong."""
    parser = OneLineParser(
        prog="python -m tools.fault_bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{name:<24} {kind.wrong}" for name, kind in KINDS.items()),
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recorder = commands.add_parser("record", help="record cells")
    recorder.add_argument("--out", required=True, help="folder of the traces and of cells.jsonl")
    recorder.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}, or {TEST_MODEL}")
    recorder.add_argument("--kinds", default=",".join(KINDS), help="default: all")
    recorder.add_argument("--seconds", type=float, default=3600.0, help="start no cell that would end later")
    recorder.add_argument("--resume", action="store_true", help="keep the cells that are recorded")
    recorder.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="where it runs (default cuda)")
    judge = commands.add_parser("judge", help="judge recorded cells")
    judge.add_argument("folder", help="folder of the traces and of cells.jsonl")
    judge.add_argument("--half", required=True, choices=tuple(HALVES), help="which models")
    arguments = parser.parse_args(argv)
    if arguments.command == "record":
        arguments.models, arguments.kinds = arguments.models.split(","), arguments.kinds.split(",")
        for name in arguments.models:
            if name not in (*MODELS, TEST_MODEL):
                parser.error(f"no model {name!r}: {', '.join(MODELS)}, {TEST_MODEL}")
        for name in arguments.kinds:
            if name not in KINDS:
                parser.error(f"no kind {name!r}: {', '.join(KINDS)}")
        if not arguments.resume and os.path.exists(os.path.join(arguments.out, "cells.jsonl")):
            parser.error(f"{arguments.out} has cells already: give --resume, or another folder")
    elif not os.path.isfile(os.path.join(arguments.folder, "cells.jsonl")):
        parser.error(f"no cells.jsonl in {arguments.folder}")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    if arguments.command == "judge":
        cells = [cell for cell in read_cells(arguments.folder) if cell["model"] in HALVES[arguments.half]]
        print(format_report(judge_cells(arguments.folder, cells), cells, arguments.half), end="")
        return 0
    cells = record(arguments.out, arguments.models, arguments.kinds, arguments.device, arguments.seconds)
    asked = {(kind, model) for kind in arguments.kinds for model in arguments.models}
    cells = [cell for cell in cells if (cell["kind"], cell["model"]) in asked]
    failed = [cell for cell in cells if cell["status"] == "failed"]
    for cell in failed:
        print(f"failed: {cell['kind']} × {cell['model']}: {cell['reason']}", file=sys.stderr)
    recorded = sum(cell["status"] == "recorded" for cell in cells)
    print(f"{recorded} of {len(asked)} cells recorded, {len(failed)} failed, {len(asked) - len(cells)} not reached")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
