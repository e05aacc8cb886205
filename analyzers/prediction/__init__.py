"""A step as a list of ops that can be changed and simulated again."""
