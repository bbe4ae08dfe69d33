"""A compiler, a device and an evaluator for tests that need no hardware."""
