"""Repetition found in the order of kernels, without annotations: tokens, iterations, layers, micro-batches."""
