"""Align two sequences."""
