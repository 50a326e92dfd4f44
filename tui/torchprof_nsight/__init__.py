"""Nsight Systems: opens the SQLite files that `nsys export` writes, as an extension of torchprof-tui."""
