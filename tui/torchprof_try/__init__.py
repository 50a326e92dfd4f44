"""Try remedies: run a program as it is, then with each remedy that its trace suggests, and say what each really won."""
