"""Costs work items, places them under the roofs of their GPU, and finds what bounds them."""
