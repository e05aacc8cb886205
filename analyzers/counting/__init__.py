"""What a step does, counted: launches, copies, synchronisations, graph breaks, FLOPs, bytes."""
