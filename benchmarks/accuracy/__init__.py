"""The chapters of docs/accuracy.md. Each module has a function `chapter(shared)`, which page.py calls."""
