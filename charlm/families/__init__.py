"""The families of models, one folder each; `family` defines and lists them, the other modules are their interfaces."""
