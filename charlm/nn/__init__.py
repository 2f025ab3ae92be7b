"""Neural network layers that depend on no task and on no model family."""
