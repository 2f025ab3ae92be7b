"""The version of charlm; setup.py has it, too. Open it to make a release."""

__version__ = "0.1.0"
