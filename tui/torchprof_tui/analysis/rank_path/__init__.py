"""Follow the critical path of a run of several ranks: through their collectives, to the rank that was late."""
