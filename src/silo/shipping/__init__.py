"""Bundles on their way to others: signed, cut and joined."""
