"""Producer ids: unique within an allocator, 63 bits, new random bits when the counter ends."""

import random

from ringlog.broker.producer_ids import COUNTER_BITS, RANDOM_BITS, ProducerIds


def test_ids_are_distinct_and_fit_63_bits() -> None:
    ids = ProducerIds(random.Random(1))
    drawn = [ids.allocate() for _ in range(1000)]
    assert len(set(drawn)) == 1000
    assert all(0 <= producer_id < 1 << 63 for producer_id in drawn)


def test_two_starts_draw_different_random_bits() -> None:
    first, second = ProducerIds(random.Random(1)), ProducerIds(random.Random(2))
    assert first.allocate() >> COUNTER_BITS != second.allocate() >> COUNTER_BITS


def test_a_used_up_counter_draws_new_random_bits() -> None:
    ids = ProducerIds(random.Random(1))
    before = ids.allocate()
    ids._counter = (1 << COUNTER_BITS) - 1
    last = ids.allocate()
    after = ids.allocate()
    assert last >> COUNTER_BITS == before >> COUNTER_BITS
    assert after >> COUNTER_BITS != before >> COUNTER_BITS
    assert after & ((1 << COUNTER_BITS) - 1) == 0


def test_the_two_parts_fill_63_bits() -> None:
    assert RANDOM_BITS + COUNTER_BITS == 63
