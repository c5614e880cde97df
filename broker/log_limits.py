"""Log lines that peers can cause, bounded in number.

Owns the budget. Must not know what is logged. Untrusted text goes in as an argument of `%s`
wrapped in `escaped`, so that no peer can write lines or control codes into the log.

Invariants:
    L1  At most `burst` lines per kind in `interval_ms`; what was left out is counted and said
        with the next line that is let through.
"""

import logging

MAX_TEXT = 200


def escaped(text: object) -> str:
    """Printable ASCII for untrusted text, cut at `MAX_TEXT` characters."""
    full = ascii(text)
    return full if len(full) <= MAX_TEXT else f"{full[:MAX_TEXT]}..."


class LimitedLog:
    """A logger with a budget per kind of line. Kinds are our own words, never a peer's."""

    def __init__(
        self, logger: logging.Logger, *, burst: int = 5, interval_ms: int = 10_000
    ) -> None:
        self._logger = logger
        self._burst = burst
        self._interval_ms = interval_ms
        self._windows: dict[str, list[int]] = {}  # kind -> [window start, lines, left out]

    def log(self, kind: str, level: int, now_ms: int, text: str, *values: object) -> None:
        """Log `text % values` unless `kind` has used its budget. `now_ms` is monotonic."""
        if not self._take(kind, now_ms):
            return
        self._logger.log(level, text, *values)

    def failure(self, kind: str, error: BaseException, now_ms: int, text: str) -> None:
        """Log `text` with the traceback of `error`, within the budget of `kind`."""
        if self._take(kind, now_ms):
            self._logger.error(text, exc_info=error)

    def _take(self, kind: str, now_ms: int) -> bool:
        window = self._windows.setdefault(kind, [now_ms, 0, 0])
        if now_ms - window[0] >= self._interval_ms:
            if window[2]:
                self._logger.warning("%d more lines about %s were left out", window[2], kind)
            window[:] = [now_ms, 0, 0]
        if window[1] >= self._burst:
            window[2] += 1
            return False
        window[1] += 1
        return True
