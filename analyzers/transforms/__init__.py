"""Functions from op list to op list: the effect of an optimization on the ops of a step."""
