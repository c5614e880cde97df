"""One partition in a real data directory, for the rows of features.md that are about files.

Plays the part of the broker: what is appended is written and flushed before it counts.
"""

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from ringlog.storage.durable_marks import DurableMarks
from ringlog.storage.log import PartitionLog
from ringlog.storage.log_config import LogConfig
from ringlog.storage.partition_identity import PartitionIdentity
from ringlog.storage.raft_log import EntryKind
from ringlog.storage.real_files import RealDirectory
from ringlog.storage.record_batch import check_for_append, iter_batches
from ringlog.storage.record_codec import Record, decode_records, encode_batch
from ringlog.storage.recovery import create_partition, open_partition_log
from ringlog.storage.types import LeaderEpoch, Offset

NOW_MS = 1_700_000_000_000
MAX_BATCH_BYTES = 10 << 20


class PartitionOnDisk:
    """A partition of topic `orders` in `data_dir`, made if it is not there, with one replica."""

    def __init__(
        self, data_dir: Path, *, partition: int = 0, config: LogConfig | None = None
    ) -> None:
        self.directory = data_dir / f"orders-{partition}"
        self._identity = PartitionIdentity(
            topic="orders", topic_uuid=UUID(int=1), partition=partition, created_ms=NOW_MS
        )
        self._config = config or LogConfig(retention_ms=-1)
        root = RealDirectory(data_dir)
        root.create()
        self._marks = DurableMarks.open(root)
        below = root.subdirectory(self.directory.name)
        create_partition(below, self._marks, self._identity, configuration=("a-directory",))
        opened = open_partition_log(below, self._marks, self._identity, self._config, now_ms=NOW_MS)
        self.log: PartitionLog = opened.log
        self._term = LeaderEpoch(self.log.raft_log.last_term + 1)
        self.log.append_own(EntryKind.TERM_OPENING, self._term, b"")

    def append(self, values: Sequence[bytes | None], *, compression: str | None = None) -> Offset:
        """Append one batch; its base offset, once it is flushed."""
        payload = encode_batch(values, timestamps=NOW_MS, compression=compression)
        header = check_for_append(payload, max_bytes=MAX_BATCH_BYTES, now_ms=NOW_MS)
        offset = self.log.append(payload, header, leader_epoch=self._term, now_ms=NOW_MS)
        self.flush()
        return offset

    def flush(self) -> None:
        job = self.log.take_job(flush=True)
        assert job is not None
        job.write()
        job.sync()
        job.mark()
        self.log.on_job_done(job)

    def read(self, offset: int, max_bytes: int) -> list[Record]:
        """Records from `offset` on, as a consumer gets them."""
        result = self.log.read(Offset(offset), max_bytes, end=self.log.durable.offset)
        assert result is not None
        return [
            record
            for position, header in iter_batches(result.data)
            for record in decode_records(result.data, position, header, from_offset=offset)
        ]

    def close(self) -> None:
        """Stop in order."""
        job = self.log.close_job()
        job.write()
        job.sync()
        job.mark()
        self.log.on_job_done(job)
        self.log.close()
        self._marks.close()

    def segments(self) -> list[str]:
        return sorted(path.name for path in self.directory.glob("*.log"))
