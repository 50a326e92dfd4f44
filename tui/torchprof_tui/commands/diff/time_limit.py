"""Parse `--fail-on '+5%'`, and decide whether a step became longer than that beyond the noise."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchprof_tui.analysis.compare.account import Account
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.trace.core.time_format import parse_time

_PERCENT = re.compile(r"\+?(\d+(?:\.\d*)?|\.\d+)\s*%")


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """How much longer a step of B may take: a share of a step of A, or ns."""

    share: float | None
    time: int

    def is_exceeded(self, account: Account) -> bool | None:
        """Return whether B is slower by more than the limit beyond the noise; None where that cannot be told."""
        beyond = account.delta_beyond_noise
        limit = self.time if self.share is None else self.share * account.a
        if beyond is None:
            return False if account.delta <= limit else None
        return beyond > limit


def parse_time_limit(text: str) -> TimeLimit:
    """Parse "+5%", "5 %" or "+200us". Raises UsageError."""
    match = _PERCENT.fullmatch(text.strip())
    if match is not None:
        return TimeLimit(float(match[1]) / 100, 0)
    try:
        time = parse_time(text)
    except ValueError:
        time = -1
    if time < 0 or not re.search(r"[a-zµμ]", text.lower()):
        raise UsageError(f"--fail-on {text}: how much longer a step may take is written +5% or +200us")
    return TimeLimit(None, time)
