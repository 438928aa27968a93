"""Making the paper's mixtures from raw literature and notes."""
