"""The JSON document of `export --json`."""

from __future__ import annotations

from typing import Annotated

from torchprof_tui.commands.common.json_document import Document, about
from torchprof_tui.commands.common.partial_input import ProblemRecord, build_partial
from torchprof_tui.commands.export.formats import ExportResult
from torchprof_tui.trace.model.trace import Trace


class ExportDocument(Document, frozen=True, kw_only=True, tag="torchprof-tui/export/1"):
    """The file that `export` wrote."""

    trace: Annotated[str, about("path of the file, as given with -o")]
    format: Annotated[str, about("its format: the name of the option that chooses it, such as parquet")]
    count: Annotated[int, about("what it holds, in `unit`")]
    unit: Annotated[str, about("what is counted: events, entries or stacks")]
    bytes: Annotated[int, about("its size")]
    left_out: Annotated[list[str], about("what of the trace is not in it, such as environment variables")]
    partial: Annotated[list[ProblemRecord], about("what was lost of the whole trace; [] for nothing")]


def build_document(trace: Trace, output: str, name: str, size: int, result: ExportResult) -> ExportDocument:
    """Build the document of a file of format `name` and `size` bytes that was written to `output`."""
    return ExportDocument(
        trace=output,
        format=name,
        count=result.count,
        unit=result.unit,
        bytes=size,
        left_out=[*result.left_out, *(value.path for value in result.private_values)],
        partial=build_partial(trace),
    )
