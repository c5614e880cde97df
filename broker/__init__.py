"""broker: one broker process: reactor, dispatch, partitions.

`docs/ARCHITECTURE.md` lists the modules.
"""
