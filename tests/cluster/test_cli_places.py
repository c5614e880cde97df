"""Places that are not there: told at once, with what is there."""

from collections.abc import Iterator

import pytest

from ringlog.client import BatchProducer
from ringlog.client.errors import RecordTooLarge
from tests.cluster.cli_process import CliBroker, ringlog


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliBroker]:
    folder = tmp_path_factory.mktemp("places")
    made = CliBroker(folder, RINGLOG_MAX_MESSAGE_BYTES="200000")
    with made:
        made.output_of("topic", "create", "t")
        made.output_of("produce", "t", stdin=b"a\nb\n")
        yield made


@pytest.mark.parametrize("more", [(), ("--until-end",)])
def test_an_offset_behind_the_end_is_exit_3_with_the_range(
    broker: CliBroker, more: tuple[str, ...]
) -> None:
    found = broker.run("consume", "t", "--partition", "0", "--offset", "999", *more)
    assert (found.returncode, found.stdout) == (3, b"")
    assert b"999" in found.stderr
    assert b"outside [0, 2]" in found.stderr


def test_a_partition_that_is_not_there_is_exit_3_with_the_count(broker: CliBroker) -> None:
    found = broker.run("consume", "t", "--partition", "7")
    assert (found.returncode, found.stdout) == (3, b"")
    assert b"t-7 does not exist: the topic has 1" in found.stderr


def test_a_first_record_larger_than_the_broker_takes_is_refused_unsent(broker: CliBroker) -> None:
    with BatchProducer(broker.address) as producer:
        with pytest.raises(RecordTooLarge, match="not sent"):
            producer.send("t", b"x" * 300_000).result(10)
        assert producer.send("t", b"c").result(10).offset == 2


def test_a_name_that_is_no_text_is_a_usage_error(broker: CliBroker) -> None:
    found = ringlog("topic", "create", "\udcff\udcfe", "-b", broker.address)
    assert found.returncode == 2
    assert b"1 to 249 characters" in found.stderr
