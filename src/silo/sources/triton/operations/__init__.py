"""The operations that the CPU compiler knows: one record each, one module a dialect."""
