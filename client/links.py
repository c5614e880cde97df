"""One connection to one address: its state, what waits on it and what is in flight.

Owns the transition table, the greeting (versions) and the way a request's frames are made. Must
not know routing, retries or sockets: `session` decides, `connection` acts.

    IDLE --open--> OPENING --opened--> GREETING --versions--> READY
      ^               |                    |                    |
      +---------------+------- lost -------+--------------------+

Invariants:
    K1  Requests are sent only in READY, the greeting only in GREETING.
    K2  A request is in at most one of `queue` and `in_flight` of at most one link.
    K3  A link whose address failed for good (`fatal`: no ringlog broker, or one of another
        version) is tried again, but counts as hopeless for the first call.
"""

import enum
from collections import deque
from collections.abc import Mapping

import msgspec

from ringlog.client.errors import BrokerError, RinglogError, UnsupportedVersion, error_from
from ringlog.client.messages import APIS, ApiKey, Message, VersionsRequest, VersionsResponse
from ringlog.client.requests import Request
from ringlog.client.timers import TimedCall
from ringlog.client.wire import (
    MAX_PAYLOAD_FRAMES,
    decode_body,
    decode_response,
    encode_request,
)
from ringlog.storage.types import Buffer

GREETING_ID = 0
"""Correlation id of the greeting; requests count from 1."""

NEEDED_APIS = (ApiKey.VERSIONS, ApiKey.METADATA)
"""A broker that shares no version of these is of no use at all."""

_decoders: dict[ApiKey, msgspec.msgpack.Decoder[Message]] = {
    key: msgspec.msgpack.Decoder(api.response) for key, api in APIS.items()
}


class LinkState(enum.Enum):
    """Where a connection stands."""

    IDLE = "idle"
    OPENING = "opening"
    GREETING = "greeting"
    READY = "ready"


class Link:
    """One address. Owned by the session."""

    __slots__ = (
        "address",
        "attempts",
        "broker_id",
        "broker_version",
        "cluster_id",
        "fatal",
        "in_flight",
        "max_message_bytes",
        "max_payload_frames",
        "queue",
        "reason",
        "retry_at_ms",
        "state",
        "timer",
        "versions",
    )

    def __init__(self, address: str) -> None:
        self.address = address
        self.state = LinkState.IDLE
        self.queue: deque[Request] = deque()
        self.in_flight: dict[int, Request] = {}
        self.timer: TimedCall | None = None
        self.attempts = 0
        self.retry_at_ms = 0
        self.reason = ""
        self.fatal: RinglogError | None = None
        self.broker_id = -1
        self.broker_version = ""
        self.cluster_id = ""
        self.max_message_bytes = 0
        self.max_payload_frames = MAX_PAYLOAD_FRAMES
        self.versions: dict[int, tuple[int, int]] = {}

    def greeting(self, client_id: str, client_version: str) -> bytes:
        """The frame that opens every connection."""
        body = VersionsRequest(client_id, client_version)
        return encode_request(ApiKey.VERSIONS, APIS[ApiKey.VERSIONS].max_version, GREETING_ID, body)

    def on_greeting(self, body: VersionsResponse, client_version: str) -> None:
        """Take over what the broker says of itself. Raises UnsupportedVersion."""
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in body.apis}
        self.broker_version = body.broker_version
        for api in NEEDED_APIS:
            self.version_of(api, client_version)
        self.broker_id = body.broker_id
        self.cluster_id = body.cluster_id
        self.max_message_bytes = body.max_message_bytes
        self.max_payload_frames = body.max_payload_frames

    def version_of(self, api: ApiKey, client_version: str) -> int:
        """Newest version of `api` that both sides speak. Raises UnsupportedVersion."""
        ours = APIS[api]
        theirs = self.versions.get(api)
        if theirs is not None:
            version = min(ours.max_version, theirs[1])
            if version >= max(ours.min_version, theirs[0]):
                return version
        spoken = "not at all" if theirs is None else f"in versions {theirs[0]} to {theirs[1]}"
        raise UnsupportedVersion(
            f"broker {self.broker_version} at {self.address} speaks {api.name} {spoken}, "
            f"this client (ringlog {client_version}) in versions {ours.min_version} to "
            f"{ours.max_version}",
            hint="install a client of the broker's version",
        )

    def encode(self, request: Request, client_version: str) -> list[Buffer]:
        """The frames of a request. Raises UnsupportedVersion, InvalidArgument."""
        version = self.version_of(request.api, client_version)
        header = encode_request(request.api, version, request.correlation_id, request.body)
        return [header, *request.frames]


class Reply(msgspec.Struct, frozen=True):
    """A response that was read: the correlation id, and a body or an error."""

    correlation_id: int
    body: Message | None
    error: BrokerError | None


def read_reply(header: Buffer, in_flight: Mapping[int, Request]) -> Reply | None:
    """Read a response's first frame. None: it answers nothing that is still waited for.

    Raises:
        MalformedFrame: what came is no response, or a body of another type.
    """
    response = decode_response(memoryview(header))
    if response.correlation_id == GREETING_ID:
        api = ApiKey.VERSIONS
    elif response.correlation_id in in_flight:
        api = in_flight[response.correlation_id].api
    else:
        return None
    if response.error is not None:
        return Reply(response.correlation_id, None, error_from(response.error))
    return Reply(response.correlation_id, decode_body(response.body, _decoders[api]), None)
