"""Report which environment variables and secrets were left out of a written trace."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from torchprof_tui.analysis.completeness.private_metadata import PrivateValue, describe_private_values
from torchprof_tui.trace.core.printable import clean


def report_private_values(left_out: Sequence[PrivateValue]) -> None:
    """Report on stderr what was left out, in one line without any value."""
    if left_out:
        text = clean(describe_private_values(left_out))
        print(f"torchprof-tui: left out: {text}; --keep-metadata keeps it", file=sys.stderr)
