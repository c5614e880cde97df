"""What the log tells operators about partitions: recoveries and moves of the log start.

Owns which of it is worth a line. Must not know partitions or how anything comes about.

Invariants:
    PN1 Nothing here writes a line per partition, unless something of that partition was cut: a
        kill and a round of retention touch them all.
"""

import logging
from collections.abc import Callable

from ringlog.broker.log_limits import LimitedLog
from ringlog.storage.segment_recovery import RecoveryReport
from ringlog.storage.types import Offset, TopicPartition

_log = logging.getLogger(__name__)


class PartitionNews:
    """One per broker, on the reactor thread."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._limited = LimitedLog(_log)
        self._recovered = 0

    def opened(self, key: TopicPartition, report: RecoveryReport) -> None:
        """A partition was opened; say at once what was cut of it."""
        if report.is_cut:
            _log.warning("partition %s: %s", key, report.cut_note())
        elif not report.clean:
            self._recovered += 1
        for note in report.notes():
            _log.debug("partition %s: %s", key, note)

    def started(self) -> None:
        """All are open: say in one line how many were recovered whole."""
        if self._recovered:
            _log.info(
                "partitions that were not closed in order: %d; nothing of them had to be cut",
                self._recovered,
            )
            self._recovered = 0

    def log_start_moved(self, key: TopicPartition, log_start: Offset, *, was_asked: bool) -> None:
        """Records below `log_start` went: a request asked for it, or retention."""
        cause = "a request" if was_asked else "retention"
        self._limited.log(
            "moves of the log start",
            logging.INFO,
            self._monotonic_ms(),
            "partition %s: %s removed the records below offset %d",
            key,
            cause,
            log_start,
        )
