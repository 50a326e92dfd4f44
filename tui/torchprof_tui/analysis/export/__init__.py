"""Write all events of a trace for other programs: as columns, or as one Chrome trace file."""
