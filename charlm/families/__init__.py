"""The families of models, a folder each; `family` says what a family is and lists them, the modules beside it are
their interfaces.
"""
