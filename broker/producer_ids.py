"""Producer ids: 43 random bits of this start of the broker and a 20-bit counter.

Owns how they are put together. Must not know registry or files: nothing is stored, so a wiped
or mirrored broker repeats no id (the chance that two starts draw the same 43 bits is 1 in
8.8e12).

Invariants:
    I1  An allocator gives no id twice; when the counter is used up it draws new random bits.
    I2  Ids are positive and fit 63 bits.
"""

import random

from ringlog.storage.types import ProducerId

RANDOM_BITS = 43
COUNTER_BITS = 20


class ProducerIds:
    """One per broker, on the reactor thread."""

    __slots__ = ("_counter", "_high", "_rng")

    def __init__(self, rng: random.Random) -> None:
        """Use `rng` (`random.SystemRandom()` in a real broker) for the random bits."""
        self._rng = rng
        self._high = rng.getrandbits(RANDOM_BITS)
        self._counter = 0

    def allocate(self) -> ProducerId:
        """Return an id that was not given before."""
        if self._counter == 1 << COUNTER_BITS:
            self._high = self._rng.getrandbits(RANDOM_BITS)
            self._counter = 0
        producer_id = self._high << COUNTER_BITS | self._counter
        self._counter += 1
        return ProducerId(producer_id)
