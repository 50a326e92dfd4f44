"""The dependency graph of a step, its critical path, and the slack of what is not on it."""
