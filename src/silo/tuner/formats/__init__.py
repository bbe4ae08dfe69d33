"""Results of other tuners, and ours in their formats: one format a file."""
