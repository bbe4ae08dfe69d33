"""The kind ``binary``: kernels compiled by other tools, with signatures that their authors declare."""
