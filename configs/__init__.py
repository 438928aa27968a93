"""One file per experiment of the paper, and the ones to start one's own from."""
