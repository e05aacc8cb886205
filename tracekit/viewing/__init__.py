"""Shows a run in the browser, in Perfetto, or in a notebook."""
