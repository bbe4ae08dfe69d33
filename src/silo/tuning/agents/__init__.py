"""Agents: devices of other machines, which check and measure configs for a tuning session here."""
