"""`make bench`: the bridge beside a relay that only forwards bytes, on the same stack and in the same run."""
