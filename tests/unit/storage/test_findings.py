"""What counts as damage."""

from ringlog.storage.findings import PartitionVerdict, Severity


def test_a_partition_is_damaged_only_by_damage() -> None:
    verdict = PartitionVerdict("orders-3", [])
    seen = [verdict.is_damaged]
    verdict.add(Severity.HARMLESS, "x.index", "is a cache")
    verdict.add(Severity.TORN_TAIL, "x.log", "torn", position=5)
    seen.append(verdict.is_damaged)
    verdict.add(Severity.DAMAGE, "x.log", "flipped", position=7)
    seen.append(verdict.is_damaged)
    assert seen == [False, False, True]
    assert [finding.position for finding in verdict.findings] == [0, 5, 7]
