"""A threshold of the patterns: a number with its unit and the reason for its value."""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.trace.core.time_format import format_duration


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number that a pattern is decided by, with its unit and the reason for its value."""

    name: str
    value: float
    unit: str
    reason: str

    @property
    def text(self) -> str:
        """The name and the value in the unit that a reader expects, then the reason."""
        return f"{self.name} {self._value_text}: {self.reason}"

    @property
    def _value_text(self) -> str:
        if self.unit == "share":
            return f"{self.value * 100:.3g} %"
        if self.unit == "ns":
            return format_duration(self.value)
        return f"{self.value:g}" if self.unit in self.name else f"{self.value:g} {self.unit}"
