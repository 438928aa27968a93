"""How runs are started: the demo here, clusters later."""
