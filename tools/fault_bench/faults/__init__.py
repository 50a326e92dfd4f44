"""The faults, by subject: each function builds the step of one kind, faulty or mended as its cell says."""
