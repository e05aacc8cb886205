"""Models with optimizations applied, ready to be measured."""
