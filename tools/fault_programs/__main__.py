"""Record a torch program with one known fault, or its mended twin.

    python -m tools.fault_programs NAME faulty|mended -o OUT.json.gz
    python -m tools.fault_programs all -o FOLDER

`all` records every program and its twin, each in a process of its own, and writes origin.json beside the traces.
Programs of two ranks write OUT.rank0.json.gz and OUT.rank1.json.gz; they need two GPUs. Meant for GPUs of 80 GB or
more; `--device cpu` runs tiny versions, which show that the programs work and little else.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from .recording import record_all
from .registry import FAULTS, VARIANTS, MissingGPUsError


class OneLineParser(argparse.ArgumentParser):
    """Report a wrong argument in one line, without the usage."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"fault_programs: {message}\n")


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse and check the arguments; exits with status 2 and one line if they are wrong."""
    parser = OneLineParser(
        prog="python -m tools.fault_programs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{name:<24} {fault.injected}" for name, fault in FAULTS.items()),
    )
    parser.add_argument("name", help="of a program (below), or all")
    parser.add_argument("variant", nargs="?", help="faulty or mended; not with all")
    parser.add_argument("-o", "--output", required=True, help="the trace (.json.gz); with all, a folder")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="where it runs (default cuda)")
    parser.add_argument("--jobs", type=int, help="with all: programs at a time (default: one per GPU)")
    arguments = parser.parse_args(argv)
    if arguments.name == "all":
        if arguments.variant:
            parser.error("all records both variants: leave out the variant")
        if arguments.jobs is not None and arguments.jobs < 1:
            parser.error("--jobs must be at least 1")
    elif arguments.name not in FAULTS:
        parser.error(f"no program {arguments.name!r}: all, {', '.join(FAULTS)}")
    elif arguments.variant not in VARIANTS:
        parser.error(f"which variant of {arguments.name}: {' or '.join(VARIANTS)}?")
    elif not arguments.output.endswith(".json.gz"):
        parser.error(f"the output must end in .json.gz: {arguments.output}")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    if arguments.name == "all":
        results = record_all(arguments.output, arguments.device, arguments.jobs)
        return 1 if any(result.status == "failed" for result in results) else 0
    profiling = importlib.import_module(f"{__package__}.profiling")  # imports torch, which `all` does not need
    faulty = arguments.variant == "faulty"
    try:
        profiling.run_program(profiling.Run(arguments.name, faulty, arguments.output, arguments.device))
    except MissingGPUsError as error:
        print(f"fault_programs: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
