"""What work costs, where it stands under the roofs of its GPU, and what bounds it."""
