"""Many models as one stack. The device is known here and nowhere else."""
