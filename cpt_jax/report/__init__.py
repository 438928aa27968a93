"""Figures and one self-contained HTML page about finished or running runs."""
