"""Runs and models a workload on several GPUs: data parallel, fully sharded, or tensor parallel."""
