"""storage: the bytes of ringlog, on disk and on the wire.

Owns the record batch format, the files of a partition and their recovery. Imports nothing
else of ringlog. `docs/ARCHITECTURE.md` lists the modules.
"""
