"""One class for each optimization: what it changes, when it is refused, what it costs, and how to apply it."""
