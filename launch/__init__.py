"""How runs are started: the demo here, and clusters."""
