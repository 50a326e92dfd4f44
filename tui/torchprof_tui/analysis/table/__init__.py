"""The profiler's table: `prof.key_averages()` from the trace alone, and what can be asked of its rows."""
