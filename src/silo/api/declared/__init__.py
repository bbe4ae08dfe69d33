"""What an author said of a kernel, and a call of it, understood."""
