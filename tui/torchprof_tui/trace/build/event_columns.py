"""The columns of the trace while it is built: allocated together, filled stage by stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from torchprof_tui.trace.core.arrays import I32, I64, U8, U16
from torchprof_tui.trace.core.column_file import ColumnAllocator


@dataclass(frozen=True, slots=True)
class EventColumns:
    """One row per drawn event, n rows, sorted by lane, start, longest first, file order. As in `Trace`.

    Where `allocate` maps them in a file they cost no memory until they are filled.
    """

    # Filled by the sort. `lane` holds slots of `LaneOrder` until slots are merged and the lanes are laid out.
    lane: I32
    ordinal: I32
    start: I64
    duration: I64
    kind: U8
    launch_of: I32
    # Filled by nesting, on a background thread.
    row: I32
    parent: I32
    self_duration: I64
    # Copied from the raw columns when the final order of events is known.
    name: I32
    category: U16
    correlation: I64

    @classmethod
    def allocate(cls, size: int, allocate: ColumnAllocator) -> EventColumns:
        """Allocate all columns, not yet initialized. Raises what `allocate` raises."""

        def column(name: str, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
            return allocate(name, size, dtype)

        return cls(
            lane=column("lane", np.int32),
            ordinal=column("ordinal", np.int32),
            start=column("start", np.int64),
            duration=column("duration", np.int64),
            kind=column("kind", np.uint8),
            launch_of=column("links.launch_of", np.int32),
            row=column("row", np.int32),
            parent=column("parent", np.int32),
            self_duration=column("self_duration", np.int64),
            name=column("name", np.int32),
            category=column("category", np.uint16),
            correlation=column("correlation", np.int64),
        )

    def __len__(self) -> int:
        return len(self.start)
