"""Join the kernels of graph replays with the ops that were captured."""
