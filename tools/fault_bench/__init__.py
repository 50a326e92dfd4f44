"""A bench of kinds of faults × models, by which the rules of `check` are judged.

Each cell is a training or inference loop with one fault, and its mended twin: both traced, both timed without the
profiler. See `kinds.KINDS` and ``python -m tools.fault_bench --help``.
"""
