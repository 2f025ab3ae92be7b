"""Trained models, ready to be asked: one interface for all; `base.Predictor.from_checkpoint` finds the right one."""
