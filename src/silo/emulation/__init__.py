"""Threads of a GPU's group on the CPU: fibers that meet, compiled by clang, and code of them that checks itself."""
