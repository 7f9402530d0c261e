"""Rules that change a request before it is rendered: pure, request in, request out, one rule per file."""
