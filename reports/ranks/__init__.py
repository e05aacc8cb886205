"""A job of several ranks as text, JSON, a page, and traces to look at."""
