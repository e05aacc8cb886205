"""The FLOPs, bytes and work of each op, from its recorded inputs: formulas by kind of op, and a table of other
libraries' ops.
"""
