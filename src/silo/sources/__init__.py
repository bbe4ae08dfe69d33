"""What a kernel is before compilation."""
