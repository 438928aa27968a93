"""Measurements against other software on the same machine; each prints a markdown table."""
