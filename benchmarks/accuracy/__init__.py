"""The chapters of docs/accuracy.md: each a module with `chapter(shared)`, listed in page.py."""
