"""The body of a CONFIGURATION entry: who votes.

Owns its bytes, because a log-start move writes the configuration at its new base into
`start-state`. Must not know what a configuration is good for.

    | format 1 | JSON list of the voters' directory UUIDs, sorted |

Invariants:
    VO1 Equal sets of voters have equal bodies.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from ringlog.storage.errors import WrongDirectory
from ringlog.storage.types import Buffer

VOTERS_FORMAT: Final = 1


def encode_voters(voters: Iterable[str]) -> bytes:
    """Return the body of a CONFIGURATION entry."""
    return bytes([VOTERS_FORMAT]) + msgspec.json.encode(sorted(voters))


def decode_voters(body: Buffer) -> tuple[str, ...]:
    """Return the directory UUIDs of the voters, sorted. Raises WrongDirectory."""
    if not body or body[0] != VOTERS_FORMAT:
        raise WrongDirectory(
            f"a configuration has format {body[0] if body else 'none'}; this version reads "
            f"{VOTERS_FORMAT}",
            hint="start the version of ringlog that wrote this data directory, or a newer one",
        )
    return msgspec.json.decode(bytes(body[1:]), type=tuple[str, ...])
