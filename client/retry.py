"""How long to pause before the next attempt.

Owns the one formula. Must not know what is tried, nor the clock.

Invariants:
    Y1  The pause of attempt n lies in [half, whole] of min(max, first x 2^(n-1)): clients that
        failed together do not come back together, and none comes back at once.
"""

import random
from typing import NamedTuple


class Backoff(NamedTuple):
    """Exponential pause with jitter, in milliseconds."""

    first_ms: int = 50
    max_ms: int = 1_000

    def pause_ms(self, attempts: int, rng: random.Random) -> int:
        """Pause after `attempts` failed attempts in a row (at least 1)."""
        # Beyond 2^20 any first pause has reached any sensible maximum; a larger power would
        # only build large integers.
        whole = min(self.max_ms, self.first_ms << min(attempts - 1, 20))
        return max(1, rng.randint(whole // 2, whole))
