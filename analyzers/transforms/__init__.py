"""Op lists, transformed: what an optimization does to the ops of a step."""
