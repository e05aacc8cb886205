"""Device memory over time, by kind and by layer."""
