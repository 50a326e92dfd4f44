"""The fault programs by theme; each module has one function per program, named like it."""
