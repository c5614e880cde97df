"""What the core has done since it started, as plain counters.

Owns the names. Must not know who reads them: they are exported elsewhere.
"""

import msgspec


class CoreMetrics(msgspec.Struct):
    """Counters only grow; gauges are named `_now`."""

    produce_requests: int = 0
    produced_batches: int = 0
    produced_bytes: int = 0
    duplicate_batches: int = 0
    refused_batches: int = 0
    """Batches answered with an error before anything was appended."""
    produce_timeouts: int = 0
    fetch_requests: int = 0
    fetched_bytes: int = 0
    cold_reads: int = 0
    """Fetches that had to wait for a disk."""
    fetch_waits_now: int = 0
    unstored_bytes_now: int = 0
    """Bytes of batches appended and not yet stored."""
    damaged_partitions: int = 0
    disk_full_refusals: int = 0
    disk_full_retries: int = 0
