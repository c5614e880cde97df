"""The file that tells whoever started the broker that it serves, and where.

Owns its content and moments. Must not know the broker.

Invariants:
    RF1 The file exists only while requests are served (or after a crash), and is whole.
"""

from ringlog.storage.real_files import RealDirectory


class ReadyFile:
    """One path, or none at all when it is empty."""

    def __init__(self, path: str) -> None:
        folder, _, self._name = path.rpartition("/")
        # "/ready" lies in the root, "ready" in the working directory.
        self._directory = RealDirectory(folder or ("/" if path.startswith("/") else "."))

    def announce(self, text: str) -> None:
        """Make the file, with one line. Raises StorageError."""
        if not self._name:
            return
        temporary = f"{self._name}.tmp"
        file = self._directory.open(temporary, create=True)
        try:
            file.truncate(0)
            file.pwrite([f"{text}\n".encode()], 0)
        finally:
            file.close()
        self._directory.rename(temporary, self._name)

    def withdraw(self) -> None:
        """Remove the file; no error when it is absent. Raises StorageError."""
        if self._name:
            self._directory.unlink(self._name)
