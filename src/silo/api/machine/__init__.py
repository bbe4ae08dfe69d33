"""What this machine has and what this process shares: devices, arrays, the store, user files."""
