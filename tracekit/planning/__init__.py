"""From the effects of optimizations to advice: scenarios, the search for a plan, recommendations."""
