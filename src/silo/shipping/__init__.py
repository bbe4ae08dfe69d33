"""Sharing of bundles: signing, cutting, joining, registries."""
