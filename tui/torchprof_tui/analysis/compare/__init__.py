"""Compare two recordings: which steps, what differs, by how much, and why."""
