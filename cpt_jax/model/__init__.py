"""ModernBERT in Flax NNX: its spec, masks, attention kernels, layers and Hugging Face files."""
