"""InitProducerId and DescribeBroker."""

from ringlog.client import messages as m
from tests.unit.broker.core_bench import NOW_MS, Bench, batch


def test_each_producer_gets_its_own_id() -> None:
    bench = Bench()
    body = m.InitProducerIdRequest()
    answers = [
        bench.ask(m.ApiKey.INIT_PRODUCER_ID, body, m.InitProducerIdResponse) for _ in range(3)
    ]
    assert len({answer.producer_id for answer in answers}) == 3
    assert {answer.producer_epoch for answer in answers} == {0}


def test_the_broker_tells_what_doctor_judges() -> None:
    bench = Bench(disk_reserve_bytes=1000)
    bench.create(partitions=2, flush_policy="os")
    bench.produce(batch(b"value"))
    bench.disk.damage(f"t-0/{0:020d}.log", 65, b"\xff\xff")
    bench.send_fetch()
    answer = bench.ask(
        m.ApiKey.DESCRIBE_BROKER, m.DescribeBrokerRequest(), m.DescribeBrokerResponse
    )
    assert answer.broker_id == 7
    assert answer.partitions == 2
    assert answer.reserve_bytes == 1000
    assert 0 < answer.free_bytes <= 1 << 40
    assert 0 < answer.open_files <= answer.open_files_limit
    assert answer.started_ms == answer.now_ms == NOW_MS
    assert answer.damaged[0].startswith("t-0: ")
    assert answer.warnings == [
        "topic t: flush.policy=os; a power loss may lose acknowledged records"
    ]
