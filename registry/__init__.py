"""registry: who owns what: topics, brokers, assignments.

`docs/ARCHITECTURE.md` lists the modules.
"""
