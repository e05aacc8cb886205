"""Reports of a comparison: page, terminal text, GitHub comment, JSON and CSV."""
