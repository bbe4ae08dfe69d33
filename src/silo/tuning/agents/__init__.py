"""Agents: devices of other machines, which check and measure configs for a tuning session on this machine."""
