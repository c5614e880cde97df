"""ringlog: a log-structured message broker, durable by default.

Owns the import root and the version. The six folders beside this one appear here as
`ringlog.storage`, `ringlog.client` and so on; nothing is imported eagerly, so that
`import ringlog.client` stays quick. Applications import `ringlog.client`.
"""

import os.path

__version__ = "0.1.0"

if not os.path.isdir(os.path.join(os.path.dirname(__file__), "storage")):  # noqa: PTH112, PTH118, PTH120 pathlib costs more than all of this
    raise ImportError(
        "ringlog was cloned or copied without symbolic links: ringlog/storage is not a folder. "
        "In the clone run: git config core.symlinks true && git checkout -- ringlog "
        "(on Windows use WSL), then install again."
    )
