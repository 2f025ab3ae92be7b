"""Plans a run without its machine: `python -m charlm.plan` compiles the run's own training step for described chips.

topology.py, chips.py   names of machines, and what the makers publish about each chip
program.py              the run's own step, traced with shapes instead of arrays
analysis.py, worker.py  compile a step for the chips, in a process of its own, and keep the result in the cache
hlo.py, groups.py       read a compiled program, and the groups of chips that communicate
counting.py             counts its operations, bytes and communication, with products.py and bytes_moved.py
network.py, figures.py  compute times, memory and the length of the run
planning.py, search.py  plan a run, and find the fastest settings that fit
report.py, table.py     write plans for people
backbone.py             an empty BERT, for runs that start from a model that is not here
"""
