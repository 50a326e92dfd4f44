"""The steps of serving engines: what each served, and what it cost on the CPU and the GPU."""
