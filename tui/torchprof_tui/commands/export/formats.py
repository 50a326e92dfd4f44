"""The formats of `torchprof-tui export`: how each is chosen, and the function that writes it."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchprof_tui.commands.common.errors import UsageError

if TYPE_CHECKING:
    from torchprof_tui.analysis.completeness.private_metadata import PrivateValue
    from torchprof_tui.trace.model.trace import Trace


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What was written: `count` things called `unit` ("events", "entries", "stacks").

    `left_out`: what the file does not hold, for stderr. `private_values`: environment variables and secrets that it
    does not hold. `kept_keys`: metadata in it of which only a search says that it holds none.
    """

    count: int
    unit: str
    left_out: tuple[str, ...] = ()
    private_values: tuple[PrivateValue, ...] = ()
    kept_keys: tuple[str, ...] = ()


Writer = Callable[["Trace", Path, argparse.Namespace], ExportResult]
"""Writes a trace (of one rank, or merged) to a path; raises OutputError, TraceError, OSError, LookupError."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format. `suffixes`: endings of its file name. `needs_flag`: chosen by `--NAME` alone, not by the file name.

    `more_suffixes`: endings that are accepted with its flag. `can_print`: it is printed where no file is named, by
    `print_text(trace, options)` of its module.

    `module`: module of this package that is imported when the format is chosen; its `write` is a `Writer`. Its
    `check_packages`, where there is one, raises MissingExtraError before the trace is read.
    """

    suffixes: tuple[str, ...]
    module: str
    help: str
    needs_flag: bool = False
    more_suffixes: tuple[str, ...] = ()
    can_print: bool = False


FORMATS = {
    "parquet": Format((".parquet",), "arrow_file", "all events as rows, for pandas, polars, DuckDB, …"),
    "arrow": Format((".arrow", ".feather"), "arrow_file", "the same as an Arrow file"),
    "csv": Format((".csv",), "csv_file", "the same as comma-separated values"),
    "folded": Format(
        (".folded",),
        "folded_file",
        "folded stacks with their self time in ns, for flamegraph.pl",
        more_suffixes=(".txt",),
        can_print=True,
    ),
    "speedscope": Format(
        (".speedscope.json",),
        "speedscope_file",
        "the same stacks for speedscope.app",
        more_suffixes=(".json",),
        can_print=True,
    ),
    "chrome": Format((".json", ".json.gz"), "chrome_file", "one Chrome trace file, also of several ranks"),
}
"""Formats by the name of their flag; of several endings of a name the first one counts.

To add one: an entry here, and its module."""


def choose_format(chosen: str | None, out: Path | None) -> tuple[str, Format]:
    """Choose the format by its flag, else by the file name; return its name and itself. Raises UsageError.

    `out`: None to print it.
    """
    if chosen is not None:
        wanted = FORMATS[chosen]
        suffixes = wanted.suffixes + wanted.more_suffixes
        if out is not None and not out.name.endswith(suffixes):
            raise UsageError(f"-o: a file of --{chosen} ends in {' or '.join(suffixes)}")
        if out is None and not wanted.can_print:
            raise UsageError(f"--{chosen} needs a file: -o NAME{wanted.suffixes[0]}")
        return chosen, wanted
    if out is None:
        raise UsageError("-o OUT is missing: the file name chooses the format; --folded and --speedscope print")
    for name, each in FORMATS.items():
        if not each.needs_flag and out.name.endswith(each.suffixes):
            return name, each
    known = [suffix for each in FORMATS.values() if not each.needs_flag for suffix in each.suffixes]
    raise UsageError(f"-o: the format is unknown: the name ends in none of {', '.join(known)}")


def print_format(wanted: Format, trace: Trace, options: argparse.Namespace) -> None:
    """Print a trace in a format that can be printed. Raises UsageError."""
    importlib.import_module(f"torchprof_tui.commands.export.{wanted.module}").print_text(trace, options)


def import_writer(wanted: Format) -> Writer:
    """Import the function that writes a format. Raises MissingExtraError where it needs a package that is missing."""
    module = importlib.import_module(f"torchprof_tui.commands.export.{wanted.module}")
    check = getattr(module, "check_packages", None)
    if check is not None:
        check()
    writer: Writer = module.write
    return writer
