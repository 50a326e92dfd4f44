"""Predict how long a step would take if parts of it were faster, gone, or arranged differently."""
