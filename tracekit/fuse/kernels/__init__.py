"""Kernel templates. Each is a complete module; a kernel for a run is a template with its constants set."""
