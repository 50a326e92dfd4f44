"""The critical path on the explorer: its scope, its panel, and what it says of an event."""
