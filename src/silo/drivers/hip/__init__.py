"""AMD GPUs through their driver."""
