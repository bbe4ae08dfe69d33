"""Compiles variants to artifacts: the plan of a build, the worker pool, the identity of compilers."""
