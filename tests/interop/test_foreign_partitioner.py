"""A key goes to the same partition as in other clients."""

import random
import warnings

import pytest

from ringlog.client.partitioners import murmur2, murmur2_partition

with warnings.catch_warnings():
    # Their import warns about itself.
    warnings.simplefilter("ignore")
    from kafka.partitioner.default import DefaultPartitioner
    from kafka.partitioner.default import murmur2 as kafka_murmur2


@pytest.mark.parametrize("seed", range(4))
def test_murmur2_agrees_with_kafka_python(seed: int) -> None:
    rng = random.Random(seed)
    for length in [*range(70), 1000]:
        key = rng.randbytes(length)
        assert murmur2(key) == kafka_murmur2(key) % 2**32


class Cluster:
    """What kafka-python's partitioner asks about a topic."""

    def __init__(self, partitions: int) -> None:
        self.partitions = set(range(partitions))

    def topics(self) -> set[str]:
        return {"t"}

    def partitions_for_topic(self, _topic: str) -> set[int]:
        return self.partitions

    def available_partitions_for_topic(self, _topic: str) -> set[int]:
        return self.partitions


def test_the_partition_agrees_with_kafka_pythons_default_partitioner() -> None:
    rng = random.Random(5)
    theirs = DefaultPartitioner()
    for partitions in (1, 2, 3, 7, 12, 100):
        cluster = Cluster(partitions)
        for _ in range(50):
            key = rng.randbytes(rng.randrange(1, 40))
            chosen = theirs.partition("t", key, key, None, None, cluster)
            assert murmur2_partition(key, partitions) == chosen
