"""The seal of a closed segment."""

from ringlog.storage.seal import Seal, decode_seal, encode_seal
from ringlog.storage.types import Offset

SEAL = Seal(Offset(7), 630, Offset(11), 410, 1_000, 0xDEADBEEF)


def test_a_seal_reads_back_only_for_its_partition() -> None:
    data = encode_seal(SEAL, seed=9)
    assert decode_seal(data, seed=9) == SEAL
    assert decode_seal(data, seed=8) is None


def test_a_flipped_or_cut_seal_is_none() -> None:
    data = encode_seal(SEAL, seed=9)
    for i in range(len(data)):
        assert decode_seal(data[:i], seed=9) is None
        assert decode_seal(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :], seed=9) is None
    assert decode_seal(data + b"\0", seed=9) is None
