"""The Python API: `import torchprof_tui as tt; trace = tt.open("trace.json.gz")`. See docs/api.md.

Thin wrappers: every number comes from the analysis function that the command of the same name uses. Results are frozen
dataclasses; times are int ns from the first event of the trace, or float µs in tables, as their names say.
"""
