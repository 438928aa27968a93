"""Text to tokens to rows to batches: numpy, tokenizers, grain, array_record; no jax, no torch.

A batch is a pure function of the corpora, the config and the step: nothing here has state to save.
"""
