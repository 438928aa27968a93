"""Commands around Hugging Face model directories; the only package of ours that imports torch."""
