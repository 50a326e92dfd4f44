"""The trace doctor: what a file lost, what was mended, what is odd though valid, what was not recorded."""
