"""Infrastructure that every training run needs: state, optimizer step, devices, checkpoints and metrics on disk.

Nothing here depends on a family or a task.
"""
