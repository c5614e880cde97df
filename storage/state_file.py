r"""Small state files that change as a whole: the old value or the new one, never a mixture.

Owns the envelope, its checks, and the steps of a replacement. Must not know what a body means.

A file is the same line twice, so that one damaged place leaves a good copy, and a person can
read it:

    {"crc32c":"9c1d3f0a","format":1,"body":{...}}\\n
    {"crc32c":"9c1d3f0a","format":1,"body":{...}}\\n

The CRC-32C covers the rest of its line, from `"format"` to the last brace.

Invariants:
    P1  After `write_state` returned, the new value survives a power cut. If it did not return,
        a later read gives the old value or the new one.
    P2  A read gives a value that was written, or raises; never another one.
    P3  A leftover `<name>.tmp` has no meaning; the next write replaces it.

Source: CRC-32C (Castagnoli), RFC 3720 appendix B.4.
"""

from typing import Final, Generic, NamedTuple, TypeVar

import crc32c
import msgspec

from ringlog.storage.errors import DamagedState, WrongDirectory
from ringlog.storage.files import Directory

T = TypeVar("T", bound=msgspec.Struct)

TEMPORARY_SUFFIX: Final = ".tmp"

_HEAD: Final = b'{"crc32c":"'
_CRC_END: Final = len(_HEAD) + 8
_REST_START: Final = _CRC_END + len(b'",')


class LoadedState(NamedTuple, Generic[T]):
    """What `load_state` found."""

    value: T
    format: int
    """Format the file was written in, at most the one asked for."""
    damaged_copy: bool
    """One copy failed its check: whoever owns the file should write it again."""


class _Envelope(msgspec.Struct):
    crc32c: str
    format: int
    body: msgspec.Raw


def encode_state(
    body: msgspec.Struct,
    *,
    format: int,  # noqa: A002 - the field's name
    seed: int = 0,
) -> bytes:
    """The bytes of a state file. `seed` starts the CRC: see `load_state`."""
    rest = b'"format":%d,"body":%b}' % (format, msgspec.json.encode(body))
    return b'%b%08x",%b\n' % (_HEAD, crc32c.crc32c(rest, seed), rest) * 2


def write_state(
    directory: Directory,
    name: str,
    body: msgspec.Struct,
    *,
    format: int,  # noqa: A002 - the field's name
    seed: int = 0,
) -> None:
    """Replace a state file, or make it, durably and as a whole (P1).

    Raises:
        DiskFull: no space; the old value stands.
        LogDirFailed: any other failure; the broker must stop.
    """
    temporary = name + TEMPORARY_SUFFIX
    file = directory.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwrite([encode_state(body, format=format, seed=seed)], 0)
        file.sync()
    finally:
        file.close()
    directory.rename(temporary, name)
    directory.sync()


def read_state(
    directory: Directory,
    name: str,
    type: type[T],  # noqa: A002 - as in msgspec
    *,
    format: int,  # noqa: A002 - the field's name
    seed: int = 0,
) -> T:
    """The value of a state file. Raises as `load_state`."""
    return load_state(directory, name, type, format=format, seed=seed).value


def load_state(
    directory: Directory,
    name: str,
    type: type[T],  # noqa: A002 - as in msgspec
    *,
    format: int,  # noqa: A002 - the field's name
    seed: int = 0,
) -> LoadedState[T]:
    """The value of a state file and whether a copy of it is damaged.

    Args:
        directory: where the file is.
        name: its name.
        type: what the body is; a field added since an older format needs a default.
        format: newest format this caller understands.
        seed: what its CRC starts with: the identity of its partition, so that another's file
            does not pass; 0 for a file that belongs to none.

    Raises:
        FileMissing: there is no such file.
        DamagedState: no copy passes its check, or two different ones do.
        WrongDirectory: it was written in a newer format.
        ReadFailed: the disk cannot give the bytes back.
    """
    file = directory.open(name)
    try:
        data = file.pread(file.size_bytes(), 0)
    finally:
        file.close()
    path = f"{directory.path}/{name}"
    half = len(data) // 2
    good = {line for line in _candidates(data) if _is_good(line, seed)}
    if not good:
        raise DamagedState("both copies fail their check", path=path)
    if len(good) > 1:
        raise DamagedState("its two copies are good but differ", path=path)
    value, written_format = _decode(good.pop(), type, path, newest=format)
    damaged = not (_is_good(data[:half], seed) and data[:half] == data[half:])
    return LoadedState(value, written_format, damaged)


def _candidates(data: bytes) -> list[bytes]:
    """Where a copy may stand: halves, or the first line when the second was cut."""
    half = len(data) // 2
    return [data[:half], data[half:], data[: data.find(b"\n") + 1]]


def _is_good(line: bytes, seed: int) -> bool:
    """Whether this is a whole line, as `encode_state` writes it, with the CRC it claims."""
    if not line.startswith(_HEAD) or not line.endswith(b"}\n"):
        return False
    rest = line[_REST_START:-1]
    return line[len(_HEAD) : _REST_START] == b'%08x",' % crc32c.crc32c(rest, seed)


def _decode(
    line: bytes,
    type: type[T],  # noqa: A002 - as in msgspec
    path: str,
    *,
    newest: int,
) -> tuple[T, int]:
    try:
        envelope = msgspec.json.decode(line, type=_Envelope)
        if envelope.format > newest:
            raise WrongDirectory(
                f"{path} was written by a newer ringlog (format {envelope.format}, this one "
                f"reads up to {newest})",
                hint="start the ringlog version that wrote it, or a newer one",
            )
        return msgspec.json.decode(envelope.body, type=type), envelope.format
    except msgspec.MsgspecError as error:
        raise DamagedState(f"its body is not as expected: {error}", path=path) from error
