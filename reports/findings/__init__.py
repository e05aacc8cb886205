"""What an analysis found, as events of the trace that it is about: for Perfetto and for Chrome's viewer."""
