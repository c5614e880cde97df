"""One broker: everything is made, started, stopped and taken apart here.

Owns the order of start and stop, and the exit code. Must not know what a request means.

    start    lock the data directory -> marks, registry -> bind -> core opens the partitions
             -> requests are read, "listening on" is announced
    stop     writes are refused -> core answers waiters, flushes, closes the logs -> replies
             leave -> threads end -> lock released -> exit 0
    fatal    requests are left unread -> waiters get STORAGE_FAILED -> replies leave -> exit 1

Invariants:
    SV1 Nothing of the data directory is touched without its lock.
    SV2 No request is read before the core has started, nor after a fatal error.
    SV3 Exit code 0 means that every log was closed with a clean mark.
    SV4 A stop ends within `stop_timeout_ms` and a second signal ends it at once.
"""

import contextlib
import gc
import logging
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from ringlog.broker.config import BrokerConfig
from ringlog.broker.context import Context
from ringlog.broker.core import BrokerCore
from ringlog.broker.dispatch import Dispatcher
from ringlog.broker.endpoint import Endpoint
from ringlog.broker.error_codes import is_known
from ringlog.broker.flusher import Flusher
from ringlog.broker.handle_versions import versions_handler
from ringlog.broker.process_limits import connection_cap, raise_file_limit
from ringlog.broker.reactor import Reactor
from ringlog.broker.ready_file import ReadyFile
from ringlog.broker.shell import Core, J
from ringlog.broker.timers import HeapTimer
from ringlog.broker.workers import Workers
from ringlog.client.errors import BrokerError, BrokerStopping, StorageFailed
from ringlog.client.messages import ApiKey
from ringlog.registry.model import BrokerInfo
from ringlog.registry.standalone import StandaloneRegistry
from ringlog.storage.data_directory import DataDirectory, open_data_directory
from ringlog.storage.durable_marks import DurableMarks
from ringlog.storage.errors import StorageError
from ringlog.storage.real_files import RealDirectory
from ringlog.storage.types import BrokerId, TopicPartition

T = TypeVar("T")

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the interpreter from the reactor (Python's default: 5 ms)."""

LAST_REPLIES_MS = 1000
"""How long the end waits for peers to take replies."""

EXIT_OK = 0
EXIT_FAILED = 1

_log = logging.getLogger(__name__)


class BrokerShell:
    """`broker.shell.Shell` over the reactor, the flusher and the workers."""

    def __init__(
        self, reactor: Reactor, workers: Workers, fatal: Callable[[Exception], None]
    ) -> None:
        self._reactor = reactor
        self._workers = workers
        self._flusher: Flusher | None = None
        self.fatal = fatal

    def attach(self, flusher: Flusher) -> None:
        """Give it the flusher, which needs the marks, which are opened later."""
        self._flusher = flusher

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970."""
        return self._reactor.now_ms()

    def monotonic_ms(self) -> int:
        """Monotonic clock, milliseconds."""
        return self._reactor.monotonic_ms()

    def flush(
        self,
        partition: TopicPartition,
        job: J,
        on_done: Callable[[J, Exception | None], None],
        *,
        sync: bool = True,
    ) -> None:
        """Write, flush and mark a job with the next group."""
        assert self._flusher is not None, "the flusher is attached before the core is made"
        self._flusher.submit(partition, job, on_done, sync=sync)

    def run(
        self, fn: Callable[[], T], on_done: Callable[[T | None, Exception | None], None]
    ) -> None:
        """Call `fn` on a worker."""
        self._workers.run(fn, on_done)

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> HeapTimer:
        """Call back once the monotonic clock has reached `monotonic_ms`."""
        return self._reactor.call_at(monotonic_ms, callback)


class Server:
    """A broker of this process. `serve` runs it; `start` and `stop` do so on a thread.

    Life: new -> `serve` (opening, serving, stopping) -> ended. Used once.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        build_core: Callable[[Context], Core] = BrokerCore,
        announce: Callable[[str], None] = _log.info,
        give_up: Callable[[], None] | None = None,
    ) -> None:
        """Make a broker that has touched nothing yet.

        Args:
            config: its settings.
            build_core: makes partitions and handlers.
            announce: gets the lines a person should see at start.
            give_up: called on a thread of its own when an end takes longer than
                `stop_timeout_ms` and a little, because a disk does not answer.
        """
        self._config = config
        self._build_core = build_core
        self._announce = announce
        self._give_up = give_up
        self._ready_file = ReadyFile(config.ready_file)
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._started = False
        self._stopping = False
        self._exit_code = EXIT_OK
        self._expiry: HeapTimer | None = None
        self._data: DataDirectory | None = None
        self._marks: DurableMarks | None = None
        self._flusher: Flusher | None = None
        self._core: Core | None = None
        self._dispatcher: Dispatcher | None = None
        self._reactor = Reactor(config)
        self._workers = Workers(self._reactor.post, threads=config.worker_threads)
        self.failure: Exception | None = None
        """Why it did not start, or ended with a code other than 0."""
        self.endpoint: Endpoint | None = None
        """Address that is bound; None before."""

    # -- For whoever runs it -------------------------------------------------------------

    def serve(self) -> int:
        """Run until stopped; gives the exit code. A failed start is in `failure`."""
        try:
            self._open()
            self._reactor.run()
        # Every reason not to start ends the same way: taken apart, and told in one line.
        except Exception as error:  # noqa: BLE001
            self._note_failure(error)
        finally:
            self._take_apart()
            if self.failure is None:
                _log.info("stopped")  # a failure has its own line
            self._ready.set()
        return self._exit_code

    def start(self, timeout: float = 30.0) -> Endpoint:
        """Serve on a thread of its own; returns once requests are served.

        Raises:
            RinglogError, StorageError: the broker cannot start.
            TimeoutError: it does not start in `timeout` seconds.
        """
        self._thread = threading.Thread(target=self.serve, name="ringlog-broker", daemon=True)
        self._thread.start()
        if not self._ready.wait(timeout):
            raise TimeoutError(f"the broker did not start within {timeout} s")
        if self.failure is not None:
            raise self.failure
        assert self.endpoint is not None
        return self.endpoint

    def stop(self, timeout: float = 30.0) -> int:
        """Stop gracefully and wait; gives the exit code. For brokers begun by `start`.

        Raises:
            TimeoutError: it does not end in `timeout` seconds.
        """
        self.request_stop()
        return self.wait(timeout)

    def wait(self, timeout: float = 30.0) -> int:
        """Wait for the end; gives the exit code. Raises TimeoutError."""
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                raise TimeoutError(f"the broker did not end within {timeout} s")
        return self._exit_code

    def request_stop(self) -> None:
        """Begin a graceful stop. Any thread, and signal handlers."""
        self._reactor.post(self._begin_stop)

    def fatal(self, error: Exception) -> None:
        """Stop because of `error` (`broker.shell.Shell.fatal`). Any thread."""
        self._reactor.post(lambda: self._begin_fatal(error))

    # -- Start ---------------------------------------------------------------------------

    def _open(self) -> None:
        config = self._config
        self._reactor.on_broken = self._begin_fatal
        rng = random.SystemRandom()
        directory = RealDirectory(config.data_dir, handle_limit=config.max_open_files)
        self._data = open_data_directory(
            directory, cluster_id=None, broker_id=BrokerId(config.broker_id), rng=rng
        )
        self._ready_file.withdraw()
        self._reactor.limit_connections(connection_cap(config, raise_file_limit()))
        bound = self.endpoint = self._reactor.bind(config.listen_endpoint)
        advertise = str(config.advertise_endpoint or bound)
        registry = StandaloneRegistry.open(
            directory, BrokerInfo(config.broker_id, advertise, config.rack)
        )
        # Only now: a directory with marks and without a registry has lost it.
        self._marks = DurableMarks.open(directory)
        shell = BrokerShell(self._reactor, self._workers, self.fatal)
        self._flusher = Flusher(
            self._reactor.post,
            flush_marks=self._marks.flush,
            on_failure=self.fatal,
            sync_threads=config.sync_threads,
        )
        self._flusher.start()
        shell.attach(self._flusher)
        context = Context(
            config=config,
            shell=shell,
            registry=registry,
            directory=directory,
            marks=self._marks,
            cluster_id=self._data.identity.cluster_id,
            broker_id=self._data.identity.broker_id,
            directory_id=self._data.identity.directory_id,
            listen=str(bound),
            advertise=advertise,
            started_ms=self._reactor.now_ms(),
            rng=rng,
        )
        self._core = self._build_core(context)
        self._dispatcher = self._make_dispatcher(context, self._core)
        self._core.start(self._core_started)

    def _make_dispatcher(self, context: Context, core: Core) -> Dispatcher:
        handlers = dict(core.handlers())
        handlers[ApiKey.VERSIONS] = versions_handler(context, {*handlers, ApiKey.VERSIONS})
        return Dispatcher(
            handlers,
            self._reactor.sessions,
            now_ms=self._reactor.now_ms,
            monotonic_ms=self._reactor.monotonic_ms,
        )

    def _core_started(self, error: Exception | None) -> None:
        if error is not None:
            self._begin_fatal(error)
            return
        self._started = True
        if self._stopping:
            self._stop_core()
            return
        assert self._dispatcher is not None
        assert self._data is not None
        self._reactor.receive_from(self._dispatcher.on_message, self._dispatcher.on_oversized)
        self._announce(f"data directory {self._data.directory.path}")
        self._announce("flush policy majority: an acknowledged record is on disk")
        self._announce(f"listening on {self.endpoint}")
        self._ready_file.announce(str(self.endpoint))
        self._ready.set()

    # -- End -----------------------------------------------------------------------------

    def _begin_stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        _log.info("stopping")
        self._arm_give_up()
        deadline_ms = self._reactor.monotonic_ms() + self._config.stop_timeout_ms
        self._expiry = self._reactor.call_at(deadline_ms, self._stop_expired)
        self._ready_file.withdraw()
        if self._dispatcher is not None:
            self._dispatcher.stopping = True
        if self._started:
            self._stop_core()

    def _stop_core(self) -> None:
        assert self._core is not None
        self._core.stop(self._send_last_replies)

    def _stop_expired(self) -> None:
        self._note_failure(
            BrokerStopping(
                f"the stop took longer than stop_timeout_ms = {self._config.stop_timeout_ms}",
                hint="the next start re-reads what was not flushed; nothing acknowledged is lost",
            )
        )
        self._abandon(BrokerStopping("the broker is shutting down", hint="try again in a moment"))

    def _begin_fatal(self, error: Exception) -> None:
        if self.failure is not None:
            # Something broke while the waiters were told: enough.
            self._reactor.end()
            return
        self._note_failure(error)
        if not is_known(error):
            _log.error("a bug of the broker, please report it", exc_info=error)
        self._abandon(
            StorageFailed(
                f"the broker stops: {error}",
                hint="it is unknown whether the request was stored; another broker or a restart "
                "will tell",
            )
        )

    def _abandon(self, error: BrokerError) -> None:
        self._stopping = True
        self._arm_give_up()
        self._reactor.stop_receiving()
        if self._core is not None and self._started:
            self._core.abandon(error)
        self._send_last_replies()

    def _send_last_replies(self) -> None:
        """End the loop once all replies have left, or after `LAST_REPLIES_MS`."""
        if self._expiry is not None:
            self._expiry.cancel()
        give_up_ms = self._reactor.monotonic_ms() + LAST_REPLIES_MS

        def look() -> None:
            now_ms = self._reactor.monotonic_ms()
            if not self._reactor.sessions.unsettled or now_ms >= give_up_ms:
                self._reactor.end()
            else:
                self._reactor.call_at(now_ms + 5, look)

        look()

    def _arm_give_up(self) -> None:
        give_up, self._give_up = self._give_up, None
        if give_up is not None:
            wait_s = (self._config.stop_timeout_ms + 2 * LAST_REPLIES_MS) / 1000
            timer = threading.Timer(wait_s, give_up)
            timer.daemon = True
            timer.start()

    def _note_failure(self, error: Exception) -> None:
        if self.failure is None:
            self.failure = error
        self._exit_code = EXIT_FAILED

    def _take_apart(self) -> None:
        """Release everything, in the reverse order of `_open`. The lock goes last (SV1)."""
        with contextlib.suppress(StorageError):
            self._ready_file.withdraw()
        self._workers.close()
        if self._flusher is not None:
            self._flusher.close()
            if self._flusher.failure is not None:
                self._note_failure(self._flusher.failure)
        self._reactor.close()
        if self._marks is not None:
            self._marks.close()
        if self._data is not None:
            self._data.close()


def run(config: BrokerConfig) -> int:
    """Run a broker in this process until a signal ends it; gives the exit code.

    SIGTERM and SIGINT stop gracefully; a second one ends the process at once.
    """
    logging.basicConfig(
        level=config.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    # Modules live as long as the process. Measured: a full collection over them takes 15 ms.
    gc.freeze()
    server = Server(config, announce=_say, give_up=lambda: os._exit(EXIT_FAILED))
    # One handler for both: a SIGINT after a SIGTERM is the second signal.
    handler = _signal_handler(server)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)
    code = server.serve()
    if server.failure is not None:
        hint = getattr(server.failure, "hint", "")
        cause = getattr(server.failure, "cause", str(server.failure))
        sys.stderr.write(f"ringlog broker: {cause}{f'; {hint}' if hint else ''}\n")
        sys.stderr.flush()
    return code


def _signal_handler(server: Server) -> Callable[[int, FrameType | None], None]:
    asked = False

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            # Somebody insists: no clean marks, the next start recovers.
            os._exit(128 + number)
        asked = True
        server.request_stop()

    return on_signal


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
