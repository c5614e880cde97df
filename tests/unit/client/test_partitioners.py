"""Published vectors; `tests/interop` compares with another client's murmur2."""

import hashlib
import zlib

import pytest

from ringlog.client.errors import InvalidArgument
from ringlog.client.partitioners import (
    crc32_partition,
    md5_partition,
    murmur2,
    murmur2_partition,
    partitioner,
)

# From Kafka's UtilsTest.testMurmur2, as signed 32-bit numbers.
MURMUR2 = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("key", "signed"), MURMUR2)
def test_murmur2_gives_the_published_values(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32
    assert murmur2_partition(key, 1000) == (signed & 0x7FFFFFFF) % 1000


def test_crc32_is_librdkafkas_consistent() -> None:
    # CRC-32 (IEEE) check value of the catalogue: "123456789" -> 0xCBF43926.
    assert zlib.crc32(b"123456789") == 0xCBF43926
    assert crc32_partition(b"123456789", 100) == 0xCBF43926 % 100
    assert crc32_partition(b"", 7) == 0


def test_md5_is_the_bucket_formula() -> None:
    expected = int(hashlib.md5(b"order-1").hexdigest(), 16) % 12
    assert md5_partition(b"order-1", 12) == expected
    # RFC 1321: MD5 ("abc") = 900150983cd24fb0d6963f7d28e17f72
    assert md5_partition(b"abc", 10**40) == 0x900150983CD24FB0D6963F7D28E17F72


@pytest.mark.parametrize("name", ["crc32", "murmur2", "md5"])
def test_named_partitioners_stay_in_range(name: str) -> None:
    choose = partitioner(name)
    seen = {choose(b"key-%d" % number, 3) for number in range(200)}
    assert seen == {0, 1, 2}


def test_a_callable_is_taken_as_it_is() -> None:
    def choose(key: bytes, partitions: int) -> int:
        return len(key) % partitions

    assert partitioner(choose) is choose


@pytest.mark.parametrize("bad", ["crc", "", 3])
def test_anything_else_is_refused(bad: object) -> None:
    with pytest.raises(InvalidArgument, match="crc32, murmur2, md5"):
        partitioner(bad)  # type: ignore[arg-type]  # on purpose
