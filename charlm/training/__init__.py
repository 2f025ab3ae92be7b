"""The training loop, the same for every family: how a run starts, goes on, reports, evaluates and ends."""
