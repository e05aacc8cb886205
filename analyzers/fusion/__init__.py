"""Groups of ops that one kernel could compute, derived from the tensors that connect them."""
