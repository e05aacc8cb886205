"""Showing a run: browser, Perfetto, notebook."""
