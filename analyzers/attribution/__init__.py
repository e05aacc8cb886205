"""Attributes device work to its launch, op, layer, phase and step."""
