"""From files to answers: analyze, compare, predict."""
