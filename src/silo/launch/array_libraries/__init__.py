"""Array libraries, a module each: making the arrays of cases; reading, writing, copying and restoring a caller's.

A library is imported when one of its arrays appears or a caller names it.
"""
