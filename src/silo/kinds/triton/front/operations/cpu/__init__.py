"""C text of operations' elements, and refusals: records refer to this code, and only the CPU compiler runs it."""
