"""torchprof-tui: read a torch.profiler trace in the terminal where it was made."""

__version__ = "0.1.0"
