"""Fifteen small torch programs, each with one known fault, and their mended twins.

They record what `check` is judged by: the first sentence must name the fault in the faulty trace, and must not in the
mended one. See `registry.FAULTS` and ``python -m tools.fault_programs --help``.
"""
