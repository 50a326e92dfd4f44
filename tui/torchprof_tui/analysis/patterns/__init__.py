"""Patterns that an expert looks for in a trace (the cheatsheet), each decided from its events."""
