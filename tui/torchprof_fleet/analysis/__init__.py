"""Many ranks at once: a small record of each rank's trace, and what comparing the records of all ranks says."""
