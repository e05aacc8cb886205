"""Two analyses side by side: what takes more or less time in a step, and why."""
