"""Summarise a trace as text or JSON: `torchprof-tui info`."""

from __future__ import annotations

import argparse
from dataclasses import replace

from torchprof_tui.answers.info import build_info, measure_time
from torchprof_tui.answers.record import as_fields
from torchprof_tui.commands.common.captures import use_captures
from torchprof_tui.commands.common.load import load_specs
from torchprof_tui.commands.common.output import print_answer
from torchprof_tui.commands.info.remote_folder import print_folder
from torchprof_tui.trace.specs.runs_by_name import FolderError


def run(options: argparse.Namespace) -> int:
    try:
        loaded = load_specs(options.trace, cache=not options.no_cache, list_folders=True)
    except FolderError as folder:
        if not folder.traces:
            raise

        print_folder(folder, options.json)
        return 0
    loaded = replace(loaded, trace=use_captures(loaded.trace, options))
    tree, reason = measure_time(loaded.trace)
    document = build_info(loaded, tree, reason)
    if options.json:
        print_answer(document)
        return 0

    from torchprof_tui.commands.info.text import print_summary  # deferred: JSON needs no rich

    print_summary(loaded.trace.label, as_fields(document), tree)
    return 0
