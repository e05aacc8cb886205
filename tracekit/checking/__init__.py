"""Gates: baselines by name, and the verdict on a run against one of them."""
