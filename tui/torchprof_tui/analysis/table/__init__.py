"""The profiler's table: `prof.key_averages()` computed from the trace alone, and further sheets of a trace."""
