"""Models with optimizations applied, ready for a measurement."""
