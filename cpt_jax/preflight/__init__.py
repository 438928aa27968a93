"""What can be known of a run before its first step, each line ok, warn or stop with a reason."""
