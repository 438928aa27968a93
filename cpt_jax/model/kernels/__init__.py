"""Attention kernels, one module per backend; all take the key intervals of `model.ranges`."""
