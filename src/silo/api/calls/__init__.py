"""What a call that was not seen before leads to: a config, perhaps tuned for at once."""
