"""Read how far forecasts of savings were off in programs that were measured, by pattern.

`forecast_errors.json` is written by `python -m tools.forecast_errors` from the tables in benchmarks/fault_bench.md and
benchmarks/try.md: real measurements alone. A forecast that is further off than saying "it saves nothing" would be is
withdrawn, and one that is rough is not claimed.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

import msgspec

LEAST_PROGRAMS = 3  # programs from which on something is said of a forecast
MAX_ERROR = 0.10  # median error, as a share of a step, up to which a forecast is claimed: what the benchmarks ask for


class ForecastError(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of one pattern: `programs` that were measured; the medians of |forecast - measured| and of |measured|, as shares.

    The latter is what a forecast of nothing would have been off by.
    """

    programs: int
    median_error: float
    median_saving: float

    @property
    def is_known(self) -> bool:
        return self.programs >= LEAST_PROGRAMS

    @property
    def is_withdrawn(self) -> bool:
        """Whether the forecasts were no better than none."""
        return self.is_known and self.median_error >= self.median_saving

    @property
    def is_rough(self) -> bool:
        """Whether the forecasts were so far off that none is claimed."""
        return self.is_known and self.median_error > MAX_ERROR

    def describe(self) -> str:
        """Describe it in a few words, as beside a forecast; "" where too few programs were measured."""
        if not self.is_known:
            return ""
        return f"measured on {self.programs} programs: median error {self.median_error * 100:.0f} points"


@lru_cache(maxsize=1)
def read_forecast_errors() -> dict[str, ForecastError]:
    """Read the packaged errors by the id of the pattern."""
    text = files(__package__).joinpath("forecast_errors.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, ForecastError])


def find_forecast_error(pattern: str) -> ForecastError | None:
    """Find the error of the forecasts of one pattern; None where none was measured."""
    return read_forecast_errors().get(pattern)
