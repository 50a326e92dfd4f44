"""Find a critical path with HolisticTraceAnalysis: `python hta_critical_path.py TRACE ANNOTATION INSTANCE`

Run by `benchmarks.critical_path_hta` with an interpreter that has HTA; it imports nothing of this repository. Prints
the sum of the weights on the path in µs.
"""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from typing import Any

import pandas as pd

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

_drop = pd.DataFrame.drop


def _drop_columns(frame: Any, *labels: Any, **options: Any) -> Any:
    """Drop as pandas 2 did: HTA 0.5 passes both `columns` and `axis`, which pandas 3 refuses."""
    if "columns" in options:
        options.pop("axis", None)
    if len(labels) > 1:
        options.setdefault("axis", labels[1])
    return _drop(frame, *labels[:1], **options)


pd.DataFrame.drop = _drop_columns

if __name__ == "__main__":
    path, annotation, instance = sys.argv[1:]
    hta = importlib.import_module("hta.trace_analysis")  # after pandas is patched
    analysis = hta.TraceAnalysis(trace_files={0: path}, trace_dir="")
    graph, is_found = analysis.critical_path_analysis(rank=0, annotation=annotation, instance_id=int(instance))
    if not is_found:
        sys.exit("no critical path was found")
    print(graph.get_critical_path_breakdown()["duration"].sum())
