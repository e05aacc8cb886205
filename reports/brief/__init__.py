"""Short answers for programs: a brief with stable row ids, and one row in full by its id."""
