"""Code that several optimizations share."""
