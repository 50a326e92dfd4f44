"""The dictionary: what the words of the program and the events of a trace mean."""
