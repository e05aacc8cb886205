"""The time of a kernel on a GPU, from the work of its op: a model for each kind of work, with constants in one
table.
"""
