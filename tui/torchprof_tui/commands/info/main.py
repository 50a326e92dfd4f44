"""Summarise a trace as text or JSON: `torchprof-tui info`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from datetime import datetime

from torchprof_tui.answers.info import build_folder_listing, build_info, measure_time
from torchprof_tui.answers.record import as_fields
from torchprof_tui.commands.common.load import load_specs, use_captures
from torchprof_tui.commands.common.output import import_text, print_answer
from torchprof_tui.commands.info import InfoOptions
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.specs.runs_by_name import FolderError, group_runs
from torchprof_tui.ui.common.number_format import format_file_size


def run(options: InfoOptions) -> int:
    try:
        loaded = load_specs(options.trace, cache=not options.no_cache, list_folders=True)
    except FolderError as folder:
        if not folder.traces:
            raise
        print_folder(folder, options.json)
        return 0
    loaded = replace(loaded, trace=use_captures(loaded.trace, options.capture, not options.no_cache))
    tree, reason = measure_time(loaded.trace)
    document = build_info(loaded, tree, reason)
    if options.json:
        print_answer(document)
        return 0
    import_text("info").print_summary(loaded.trace.label, as_fields(document), tree)
    return 0


def print_folder(folder: FolderError, as_json: bool) -> None:
    """Print how to open each trace on stdout, and how to open the ranks of a run together on stderr."""
    if as_json:
        print_answer(build_folder_listing(folder))
        return
    runs = group_runs(folder.traces)
    ranked = any(each.rank is not None for each in folder.traces)
    for each in folder.traces:
        rank = f"{'' if each.rank is None else f'rank {each.rank}':<10}" if ranked else ""
        size = "-" if each.size is None else format_file_size(each.size)
        modified = f"{datetime.fromtimestamp(each.modified):%Y-%m-%d %H:%M}" if each.modified else "-"
        print(f"{size:>9}  {modified:16}  {rank}{clean(each.spec)}")
    if folder.omitted:
        print(f"only the newest {len(folder.traces):,} are listed; name a subfolder to see others", file=sys.stderr)
    for run in runs:
        names = " ".join(shlex.quote(clean(spec)) for spec in run.specs)
        print(f"all {len(run.traces)} ranks of one run: {names}", file=sys.stderr)
