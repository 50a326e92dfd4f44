"""Map the architecture words of kernel names to compute capabilities."""

from __future__ import annotations

ARCHITECTURES = {
    "kepler": "sm_35",
    "maxwell": "sm_50",
    "pascal": "sm_60",
    "volta": "sm_70",
    "turing": "sm_75",
    "ampere": "sm_80",
    "ada": "sm_89",
    "hopper": "sm_90",
    "blackwell": "sm_100",
}
