"""The traces of a job's ranks: where they are, and how they are read by several processes."""
