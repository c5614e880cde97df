"""bench: measured beside a raw loop in the same run."""
