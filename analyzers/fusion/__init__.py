"""Groups of ops that one kernel could compute, found by the tensors that connect them."""
