"""Array libraries, a module each: making the arrays of cases; reading, writing, copying and restoring a caller's.

None is imported before one of its arrays appears or it is asked for by name.
"""
