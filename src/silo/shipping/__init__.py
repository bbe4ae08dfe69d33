"""Ships bundles: signs them, cuts and joins them, and exchanges them with registries."""
