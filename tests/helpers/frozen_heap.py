"""Exempt all objects that live now from garbage collection, for good."""

from __future__ import annotations

import gc

_freeze = gc.freeze


def freeze_heap() -> None:
    """Exempt what lives now: each full collection of a test would traverse it. The tests keep apps from thawing it."""
    gc.collect()
    _freeze()
