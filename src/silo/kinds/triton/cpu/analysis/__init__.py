"""Analyses of a kernel's SSA form, and rewrites of that form before it is lowered to loops."""
