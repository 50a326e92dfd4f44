"""Record a job that is already running: `torchprof-tui attach`."""
