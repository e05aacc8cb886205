"""Findings of an analysis as events in its trace, for Perfetto and Chrome's viewer."""
