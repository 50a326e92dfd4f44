"""Test which regime the shares of a scope's time make, at both sides of each threshold."""

from __future__ import annotations

import pytest

from tests.helpers.golden_files import load_sample
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.idle_causes import DeviceTimeShares, IdleCause
from torchprof_tui.analysis.patterns.verdict.verdict import Regime, decide_regime


def shares(compute: float = 0.0, exposed: float = 0.0, **idle: float) -> DeviceTimeShares:
    """Shares of a scope; what is neither named nor idle is copies."""
    causes = {IdleCause[name.upper()]: share for name, share in idle.items()}
    return DeviceTimeShares(1 - sum(idle.values()), compute, exposed, causes)


@pytest.mark.parametrize(
    ("measured", "regime"),
    [
        (shares(compute=0.85, dispatch=0.15), Regime.COMPUTE),
        (shares(compute=0.84, dispatch=0.08, host=0.08), Regime.MIXED),
        # A wait with a name of its own, if it takes a quarter and no less than what the CPU causes.
        (shares(compute=0.45, input=0.3, dispatch=0.25), Regime.INPUT),
        (shares(compute=0.4, input=0.3, dispatch=0.3), Regime.INPUT),
        (shares(compute=0.2, input=0.3, dispatch=0.3, launch=0.2), Regime.OVERHEAD),
        (shares(compute=0.35, input=0.3, dispatch=0.2, launch=0.15), Regime.MIXED),  # too busy for overhead alone
        (shares(compute=0.52, input=0.24, dispatch=0.24), Regime.MIXED),
        (shares(compute=0.4, exposed=0.3, dispatch=0.3), Regime.COMMUNICATION),
        (shares(compute=0.1, exposed=0.1, communication=0.3, dispatch=0.3, host=0.2), Regime.OVERHEAD),
        (shares(compute=0.3, exposed=0.2, communication=0.2, sync=0.3), Regime.COMMUNICATION),
        (shares(compute=0.3, exposed=0.3, input=0.4), Regime.INPUT),
        (shares(compute=0.3, exposed=0.4, input=0.3), Regime.COMMUNICATION),
        (shares(compute=0.2, dispatch=0.4, unknown=0.4), Regime.OVERHEAD),
        (shares(compute=0.2, dispatch=0.3, unknown=0.5), Regime.MIXED),
        # Held back on the GPU for most of the time: nothing says why.
        (shares(compute=0.2, queued=0.5, input=0.3), Regime.UNKNOWN),
        (shares(compute=0.21, queued=0.49, input=0.3), Regime.INPUT),
    ],
)
def test_the_regime_of_shares(measured: DeviceTimeShares, regime: Regime) -> None:
    assert decide_regime(measured) is regime


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ("attention_flash", "compute-bound after the first step · GPU busy"),
        ("matmul_add_4096_warm_eager", "mixed (no single limit) · GPU busy"),
        ("article_4096_active20", "compute-bound · GPU busy"),
    ],
)
def test_a_verdict_begins_with_words_that_need_no_explanation(sample: str, words: str) -> None:
    checker = Checker(load_sample(sample))
    assert checker.decide_verdict(findings=checker.check()).text.startswith(words)
