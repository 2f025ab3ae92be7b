"""Layers that know no task and no model family."""
