"""Runs as JobSets on Kubernetes."""
