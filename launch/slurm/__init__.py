"""Runs as SLURM jobs."""
