"""Find why a job hangs: `torchprof-tui hang`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from torchprof_hang.answers import Hang, build_hang
from torchprof_hang.command import DEFAULT_COLLECTIVES, HangOptions
from torchprof_hang.command.files import read_evidence
from torchprof_hang.command.live import LOCAL, collect_stacks
from torchprof_tui.commands.common.output import print_answer
from torchprof_tui.commands.common.terminal import find_terminal_problem, show_screen
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.resolve import resolve_path
from torchprof_tui.trace.sources.ssh_connections import SshConnections
from torchprof_tui.trace.specs.address import parse_ssh_path


def run(options: HangOptions) -> int:
    names = [f"{host}:." for host in options.source if host not in LOCAL] if options.live else options.source
    with SshConnections() as connections:
        hosts = [path for path in map(parse_ssh_path, map(resolve_path, names)) if path is not None]
        connections.connect_all(hosts, allow_prompt=sys.stderr.isatty())
        evidence = collect_stacks(options.source) if options.live else read_evidence(options.source)
    hang = build_hang(evidence, options.top)
    if options.trace is not None:
        hang = build_hang(evidence, options.top, describe_before(options.trace, hang.ranks))
    if options.json:
        print_answer(hang)
    elif sys.stdout.isatty() and not find_terminal_problem():
        return show_screen(options, evidence, hang)
    else:
        # imports rich, which JSON does not need
        importlib.import_module("torchprof_hang.command.text").print_hang(hang)
    return 0


def explain_hang(sources: Sequence[str]) -> Hang:
    """Find why a job hangs, from folders or files, for other commands. Raises UsageError."""
    return build_hang(read_evidence(sources), DEFAULT_COLLECTIVES)


def describe_before(folder: str, ranks: Sequence[int]) -> str:
    """Describe the rank at fault before the hang, by the traces of all ranks: one line."""
    if not ranks:
        return ""
    try:
        fleet = importlib.import_module("torchprof_fleet.command.main")
        report, _ = fleet.compare_sources([folder])
        listed = importlib.import_module("torchprof_fleet.answers").list_ranks(report, sys.maxsize)
    except (TraceError, ImportError, OSError) as error:
        return f"not compared with {folder}: {' '.join(str(error).split())}"
    found = next((each for each in listed if each.rank == ranks[0]), None)
    if found is None:
        return f"rank {ranks[0]} has no trace in {folder}"
    factors = [
        f"its {name} took {factor:.2f} × the median rank's time"
        for name, factor in (("CPU", found.cpu_factor), ("GPU", found.gpu_factor))
        if factor is not None
    ]
    late = f"before the hang rank {found.rank} came {found.late_share:.0%} of a step later than the median rank"
    return "; ".join([late, *factors])
