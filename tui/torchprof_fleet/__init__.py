"""Fleet: compares all ranks of a job, as an extension of torchprof-tui that adds the command `fleet`."""
