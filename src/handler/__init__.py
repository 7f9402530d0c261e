"""The edge: HTTP, Lambda, environment variables, logs. Nothing below it knows these exist."""
