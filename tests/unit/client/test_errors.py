"""One class per code, and facts a client acts on."""

import pytest

from ringlog.client import errors
from ringlog.client.errors import (
    BrokerError,
    ClientError,
    DeadlineExceeded,
    DeliveryUnknown,
    ErrorCode,
    ErrorInfo,
    InternalError,
    InvalidArgument,
    NoBrokerReachable,
    NotLeader,
    RecordTooLarge,
    RinglogError,
    error_from,
)


def subclasses(root: type[RinglogError]) -> list[type[RinglogError]]:
    found = list(root.__subclasses__())
    return found + [deeper for one in found for deeper in subclasses(one)]


def test_each_code_but_ok_has_its_class_and_the_reverse() -> None:
    codes = [one.error_code for one in BrokerError.__subclasses__()]
    assert sorted(codes) == sorted(code for code in ErrorCode if code is not ErrorCode.OK)


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.OK])
def test_an_error_travels_and_comes_back(code: ErrorCode) -> None:
    error = error_from(ErrorInfo(int(code), "cause", "hint"))
    assert (error.error_code, error.code) == (code, code.name)
    assert error.info() == ErrorInfo(int(code), "cause", "hint")
    assert str(error) == "cause (hint)"


def test_a_code_of_a_newer_broker_keeps_its_number() -> None:
    error = error_from(ErrorInfo(999, "cause"))
    assert isinstance(error, InternalError)
    assert "999" in error.cause
    assert not error.retriable


def test_facts_a_client_acts_on() -> None:
    assert (NotLeader.retriable, NotLeader.refresh_metadata) == (True, True)
    assert (DeadlineExceeded.retriable, DeliveryUnknown.retriable) == (True, False)
    assert DeliveryUnknown.code == "DeliveryUnknown"


def test_errors_are_what_python_calls_them_too() -> None:
    assert issubclass(DeadlineExceeded, TimeoutError)
    assert issubclass(NoBrokerReachable, ConnectionError)
    assert issubclass(InvalidArgument, ValueError)
    assert issubclass(RecordTooLarge, ValueError)


def test_every_error_says_what_it_is() -> None:
    for one in [*subclasses(BrokerError), *subclasses(ClientError)]:
        assert one.__doc__, one
        assert one.__module__ == errors.__name__, "the tree of errors is in one place"
