"""Turns the effects of optimizations into advice: scenarios, the search for a plan, recommendations."""
