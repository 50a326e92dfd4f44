"""Settings of the interpreter are restored, also after errors and in nested blocks."""

from __future__ import annotations

import contextlib
import gc
import sys

import pytest

from torchprof_tui.trace.core.process_state import pause_garbage_collection, use_switch_interval


def test_the_switch_interval_is_restored() -> None:
    before = sys.getswitchinterval()
    with contextlib.suppress(KeyError), use_switch_interval(0.001):
        with use_switch_interval(0.0005):
            assert sys.getswitchinterval() == pytest.approx(0.0005)
        assert sys.getswitchinterval() == pytest.approx(0.001)
        raise KeyError
    assert sys.getswitchinterval() == before


def test_only_the_outer_block_enables_the_collector_again() -> None:
    assert gc.isenabled()
    with contextlib.suppress(KeyError), pause_garbage_collection():
        with pause_garbage_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()
