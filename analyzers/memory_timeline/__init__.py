"""Device memory over time: who holds it, by kind and by layer."""
