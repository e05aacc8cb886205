"""What several optimizations have in common."""
