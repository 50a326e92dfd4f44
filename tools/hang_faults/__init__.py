"""Jobs over gloo with one known fault each, whose dumps `torchprof-tui hang` must explain."""
