"""Loop nests on grids of workgroups: GPUs."""
