"""Predicts how a training step scales from one GPU to several under DistributedDataParallel."""
