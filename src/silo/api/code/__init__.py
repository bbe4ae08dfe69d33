"""From variants to code: compiled, shown, loaded."""
