"""How a training step of one GPU scales over several that each do the same (DistributedDataParallel)."""
