"""replication: how a partition's log is agreed and committed.

`docs/ARCHITECTURE.md` lists the modules.
"""
