"""`ringlog doctor`: dial every address there is and say what is wrong, and what to do.

Owns the questions and the exit code. The judgements are in `doctor_checks`.
"""

import os
import time
from collections.abc import Sequence

import click

from ringlog import __version__
from ringlog.client import Admin
from ringlog.client.admin import BrokerInfo
from ringlog.client.config import bootstrap_addresses
from ringlog.client.errors import NoBrokerReachable, RinglogError
from ringlog.tools.cli.doctor_checks import (
    Asked,
    Check,
    Level,
    address_checks,
    broker_checks,
    cluster_checks,
)
from ringlog.tools.cli.exits import Exit, one_line
from ringlog.tools.cli.options import BOOTSTRAP_TIMEOUT_MS, bootstrap_option, json_option
from ringlog.tools.cli.output import print_json, print_table


@click.command(name="doctor")
@bootstrap_option
@json_option
def command(bootstrap_servers: str | None, *, as_json: bool) -> int:
    """Dial each broker and each advertised address; name what is wrong.

    Looks at address, version, clock, free space, file limit, flush policy and damage. Exit code
    0: nothing wrong; 1: something is; 4: nobody answers; 6: a partition is damaged.

    Example: ringlog doctor -b broker1:5555,broker2:5555
    """
    addresses = bootstrap_addresses(bootstrap_servers, os.environ)
    checks = _examine(addresses)
    if as_json:
        print_json([check._asdict() for check in checks])
    else:
        print_table(("address", "check", "", "found"), [tuple(check) for check in checks])
    levels = {check.level for check in checks}
    if Level.DAMAGE in levels:
        return Exit.DAMAGED
    if Level.OK not in levels:
        return Exit.UNREACHABLE
    return Exit.FAILED if Level.WRONG in levels else Exit.DONE


def _examine(addresses: Sequence[str]) -> list[Check]:
    """Dial the given addresses, then those they tell clients to dial."""
    asked: dict[str, Asked] = {}
    unreachable: dict[str, str] = {}
    advertised: dict[tuple[int, str], BrokerInfo] = {}
    waiting = list(addresses)
    while waiting:
        address = waiting.pop(0)
        if address in asked or address in unreachable:
            continue
        try:
            asked[address], brokers = _ask(address)
        except RinglogError as error:
            unreachable[address] = _reason(error)
            continue
        advertised.update({(broker.broker_id, broker.endpoint): broker for broker in brokers})
        waiting += [broker.endpoint for broker in brokers]
    checks = [
        Check(address, "dial", Level.WRONG, unreachable[address])
        if address in unreachable
        else Check(address, "dial", Level.OK, f"broker {asked[address].answer.broker_id} answers")
        for address in addresses
    ]
    checks += address_checks(list(asked.values()), list(advertised.values()), unreachable)
    seen: set[str] = set()
    for one in asked.values():
        # Two addresses of one process are one broker.
        identity = f"{one.answer.cluster_id}/{one.answer.broker_id}"
        if identity not in seen:
            seen.add(identity)
            checks += broker_checks(one, __version__)
    return checks + cluster_checks(list(asked.values()))


def _ask(address: str) -> tuple[Asked, Sequence[BrokerInfo]]:
    with Admin(
        address,
        client_id="ringlog-doctor",
        request_timeout_ms=BOOTSTRAP_TIMEOUT_MS,
        bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT_MS,
        connect_timeout_ms=BOOTSTRAP_TIMEOUT_MS,
    ) as admin:
        before_ms = _now_ms()
        answer = admin.describe_broker(address)
        asked = Asked(address, answer, before_ms, _now_ms())
        return asked, admin.describe_cluster().brokers


def _reason(error: RinglogError) -> str:
    if isinstance(error, NoBrokerReachable) and error.reasons:
        return "; ".join(f"{reason}" for _address, reason in error.reasons)
    return one_line(error)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
