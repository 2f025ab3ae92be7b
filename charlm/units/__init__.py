"""The text side of every family of models, behind one interface, for tasks that do not care which it is."""
