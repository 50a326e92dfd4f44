"""The events of a trace as columns, and one event as a record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from torchprof_tui.analysis.export.event_columns import EXTRA, MISSING, NUMBER_COLUMNS, EventColumns, build_arrow_table
from torchprof_tui.analysis.search.name_search import suggest_names
from torchprof_tui.answers.arguments import check_row, check_text
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.extensions import import_extra
from torchprof_tui.trace.core.records import record

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


@record
class Event:
    """One event. `index`: its row in `Trace.events`; `parent` and `launch` are rows, too. None for what it lacks."""

    index: int
    name: str
    category: str
    kind: str
    start_ns: int
    duration_ns: int
    self_ns: int
    lane: str
    group: str
    process: str
    thread: str
    stream: int | None
    device: int | None
    rank: int | None
    step: int | None
    correlation: int | None
    parent: int | None
    launch: int | None


@dataclass(frozen=True, repr=False)
class Events(EventColumns):
    """All events, one row each: `len(events)`, `events[i]`, and columns as attributes.

    Columns of times and numbers are read-only numpy arrays (`start_ns`, `duration_ns`, …; -1 for none); columns of
    texts have `codes`, `values` and `to_numpy()` (`name`, `category`, …). `COLUMNS` has all names.
    """

    def __getitem__(self, index: int) -> Event:
        """Return one event; negative indices count from the end. Raises TraceError, also an IndexError."""
        row = check_row("index", index, len(self), "events")
        texts: dict[str, Any] = {name: column.values[int(column.codes[row])] for name, column in self._text_columns()}
        numbers = {name: int(getattr(self, name)[row]) for name in NUMBER_COLUMNS}
        known: dict[str, Any] = {name: None if value == MISSING else value for name, value in numbers.items()}
        return Event(
            index=row,
            start_ns=int(self.start_ns[row]),
            duration_ns=int(self.duration_ns[row]),
            self_ns=int(self.self_ns[row]),
            **texts,
            **known,
        )

    def __iter__(self) -> Iterator[Event]:
        """Yield all events as records: slow for many; use the columns."""
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        return f"<{len(self):,} events>"

    def find(self, name: str) -> I64:
        """Find the rows of the events of this name, by start: int64[k]. Raises TraceError if there is none."""
        if check_text("name", name, "give the name of events") not in self.trace.names:
            near = ", ".join(map(repr, suggest_names(self.trace.names, name)))
            raise TraceError(f"no event has the name {name!r}" + (f"; did you mean {near}?" if near else ""))
        rows = np.flatnonzero(self.trace.name == self.trace.names.index(name))
        return rows[np.argsort(self.trace.start[rows], kind="stable")].astype(np.int64)

    def to_arrow(self) -> pa.Table:
        """Return a pyarrow.Table: texts dictionary-encoded, times int64, missing numbers null. Needs the extra `arrow`.

        Raises MissingExtraError, which is a TraceError and an ImportError.
        """
        return build_arrow_table(self)

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas.DataFrame: texts categorical, missing numbers <NA>. Needs the extra `arrow` and pandas."""
        pandas: Any = import_extra("pandas")
        arrow: Any = import_extra("pyarrow", EXTRA)
        table = self.to_arrow()
        nullable = {arrow.int32(): pandas.Int32Dtype()}
        frame: pd.DataFrame = table.to_pandas(types_mapper=nullable.get)
        frame["correlation"] = frame["correlation"].astype("Int64")
        return frame

    def to_polars(self) -> pl.DataFrame:
        """Return a polars.DataFrame: texts categorical, missing numbers null. Needs the extra `arrow` and polars."""
        polars: Any = import_extra("polars")
        frame: pl.DataFrame = polars.from_arrow(self.to_arrow())
        return frame
