"""client: the wire protocol and the synchronous client library.

`docs/ARCHITECTURE.md` lists the modules.
"""
