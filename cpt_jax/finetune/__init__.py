"""Fine-tuning on tasks over many seeds at once, and verdicts on what came out."""
