"""A comparison of systems at equal budget: pre-trains, fine-tunes, measures under noise and reports, from one config.

The command line is `python -m charlm.league`. Begin with `config` for what a league is, with `plan` for the jobs that
it becomes, with `running` for how they run and resume, and with `standing` for intervals, ranks and claims.
"""
