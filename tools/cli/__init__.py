"""cli: the `ringlog` command."""
