"""The kind ``binary``: kernels compiled by other tools, with their signatures as authors write them."""
