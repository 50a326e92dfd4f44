"""The command `hang`: which rank did not come to a collective, and at which line."""
