"""The families of models, one folder each, and the interfaces that every family implements.

Begin with `family`, which defines what a family is and lists all of them.
"""
