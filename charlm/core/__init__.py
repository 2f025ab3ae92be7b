"""What every training run needs, whatever it trains: state, step, devices, checkpoints, metrics on disk. Knows no
family and no task.
"""
