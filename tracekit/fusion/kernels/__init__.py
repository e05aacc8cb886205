"""Templates of kernels. Each is a complete module; what is written for a run is one of them with its constants set."""
