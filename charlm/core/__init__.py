"""Infrastructure that every training run needs: state, optimizer step, devices, checkpoints and metrics on disk.

Nothing here depends on a family or a task; look here for what all runs have in common. To follow a training step, read
`state`, `step`, `optimizer` and `sharding`; to follow what a run leaves on disk, `checkpoint`, `checkpoint_store` and
`metric_writer`.
"""
