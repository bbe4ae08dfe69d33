"""Hypothesis without limits of time."""

import hypothesis_limits  # noqa: F401  # loads its profile
