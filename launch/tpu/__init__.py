"""Runs on TPU VMs."""
