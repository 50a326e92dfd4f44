"""Read what a job that hangs has left, align the collectives of its ranks, and name the cause."""
