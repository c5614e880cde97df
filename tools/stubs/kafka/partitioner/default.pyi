"""The part of kafka-python that tests/interop uses."""

class DefaultPartitioner:
    def partition(
        self,
        topic: str,
        key: object,
        serialized_key: bytes | None,
        value: object,
        serialized_value: bytes | None,
        cluster: object,
    ) -> int: ...

def murmur2(data: bytes) -> int: ...
