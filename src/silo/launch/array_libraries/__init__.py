"""The array libraries, a module each: how arrays of cases are made, a caller's are read, copied, written and put back.

None is imported before one of its arrays appears or somebody asks for it by name.
"""
