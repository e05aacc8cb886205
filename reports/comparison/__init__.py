"""A comparison -> something a person opens."""
