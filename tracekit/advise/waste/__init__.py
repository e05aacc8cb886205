"""Work that a better program would not do: a detector for each kind, and its words in kinds.toml."""
