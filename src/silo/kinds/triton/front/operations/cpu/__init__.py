"""C expressions of operations' elements, and reasons to refuse operations.

Records refer to them; the CPU compiler runs them.
"""
