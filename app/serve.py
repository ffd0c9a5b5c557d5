"""The lifecycle of the server process: start, serve, lead or wait for the lease, shut down in order.

Shutdown (SIGTERM, or SIGINT once): the process stops being ready. Passes in flight finish, and the lease is released,
so that another replica continues. Admission serves until the endpoint is withdrawn. Requests in work are answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from app.application import at_listener, create_application
from app.bind import bind
from app.connections import Bounds
from app.health import Check, Handshake, flag_check, health_router
from app.memory import tend_memory
from app.metrics import metrics_router
from app.registration import Registration
from app.server import LoopServer, serving
from app.settings import Settings
from app.tokens import TokenGate
from app.watchdog import Watchdog
from app.wiring import Parts, Wiring, wire
from certs.pem import BadCertificate
from certs.serve import ServingCertificate
from kube.auth import NoCredentials
from kube.cache import Key
from kube.client import Client
from kube.courtesy import Courtesy
from kube.engine import AlwaysLeading, Engine
from kube.events import EventRecorder
from kube.informer import Informer
from kube.lease import Lease

log = logging.getLogger(__name__)

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_FORCED = 0, 1, 2, 130
_HEALTH_BOUNDS = Bounds(connections=128, per_address=64, request_seconds=5, keep_alive_seconds=60, finish_seconds=1)
_NO_CERTIFICATE = "no usable serving certificate (missing or expired)"
_QUIET_SECONDS = 1.0  # without a review: then the endpoint has been withdrawn
_DRAIN_SHARE = 0.7  # of the whole shutdown time, for reviews that still arrive


class Stop:
    """Turns signals into an event; a second SIGINT ends the process at once."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    def ask(self) -> None:
        """Begin the shutdown."""
        if self.asked.is_set():
            log.warning("second interrupt: exiting at once")
            logging.shutdown()
            os._exit(EXIT_FORCED)
        self.asked.set()

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """Listen to SIGTERM and SIGINT around a block. A second SIGTERM forces nothing: kubelets may repeat it."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self.ask)
        loop.add_signal_handler(signal.SIGTERM, self.asked.set)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            loop.remove_signal_handler(signal.SIGTERM)


def run(settings: Settings) -> int:
    """Serve until a signal; returns the exit code."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(serve(settings))


async def serve(settings: Settings, stop: Stop | None = None) -> int:
    """Serve until `stop` (signals by default) asks for the shutdown; returns the exit code."""
    stop = stop or Stop()
    with stop.on_signals():
        try:
            kubeconfig = str(settings.kubeconfig) if settings.kubeconfig else None
            client = await Client.connect(
                kubeconfig,
                settings.context,
                within=settings.api_timeout.total_seconds(),
                field_validation=settings.field_validation,
            )
        except NoCredentials as error:
            log.error("no credentials for a cluster", extra={"error": str(error)})
            return EXIT_USAGE
        async with client:
            try:
                process = _Process(settings, client, stop)
            except (OSError, BadCertificate) as error:  # a port, or the file of client CA certificates
                log.error("cannot serve", extra={"error": str(error)})
                return EXIT_FAILED
            await process.live()
    log.info("stopped")
    return EXIT_OK


class _Process:
    """All parts of one running server."""

    def __init__(self, settings: Settings, client: Client, stop: Stop) -> None:
        self._settings, self._client, self._stop = settings, client, stop
        self._listeners: list[socket.socket] = []
        try:
            self._make_parts()
        except (OSError, BadCertificate):
            for listener in self._listeners:
                listener.close()
            raise

    def _make_parts(self) -> None:
        settings, client = self._settings, self._client
        identity = f"{settings.pod_name or socket.gethostname()}_{secrets.token_hex(4)}"
        self._lease = _make_lease(settings, client, identity)
        writer = client.guarded(self._lease) if self._lease is not None else client
        self._recorder = EventRecorder(writer, instance=identity, default_namespace=settings.own_namespace())
        self._wiring: Wiring = wire(Parts(settings, client, writer, self._recorder, self._wake))
        self._admission: LoopServer | None = None
        self._engine = Engine(
            self._wiring.controllers if settings.reconciler else [],
            [*self._wiring.informers, *self._wiring.admission_informers],
            self._lease if self._lease is not None else AlwaysLeading(),
            workers=settings.workers,
            drain=settings.shutdown_grace - settings.drain,
            courtesy=Courtesy(lambda: self._admission.answered if self._admission is not None else 0),
        )
        clients = settings.client_ca_file.read_bytes() if settings.client_ca_file else None
        self._certificate = ServingCertificate(client_authorities=clients)
        self._application = self._make_application()
        self._admission = self._make_admission()
        self._registration = self._make_registration()
        self._watchdog = Watchdog()
        self._checks += self._make_checks()
        self._servers = [
            LoopServer(
                "health", at_listener(self._application, "health"), self._bind(settings.health_port), _HEALTH_BOUNDS
            ),
            *([self._admission] if self._admission is not None else []),
            *self._metrics_servers(),
        ]

    def _make_registration(self) -> Registration | None:
        return None if self._admission is None else Registration(self._client, self._settings, self._admission.address)

    def _make_application(self) -> FastAPI:
        """Return the application with the routes of all that this process runs."""
        gate = TokenGate(self._client, "/metrics") if self._settings.metrics_auth else None
        self._checks: list[Check] = []  # filled when the servers are made
        routers = [health_router(self._checks), metrics_router(gate)]
        if self._wiring.admission is not None:
            from webhooks.routes import admission_router  # noqa: PLC0415 - loaded where it is switched on

            routers.append(admission_router(self._wiring.admission))
        if self._wiring.console is not None:
            routers.append(self._wiring.console.router())
        return create_application(*routers)

    def _wake(self, controller: str, key: Key) -> None:
        """Request a pass that no watch event caused."""
        self._engine.enqueue(controller, key)

    async def live(self) -> None:
        """Serve until the shutdown is requested and complete."""
        settings, servers = self._settings, self._servers
        async with serving(*servers), self._certificates(), _background(self._jobs()) as watched:
            log.info("serving", extra={server.name: server.address[1] for server in servers})
            controllers = asyncio.create_task(self._engine.run_controllers(), name="controllers")
            watched.add(controllers)
            asked = asyncio.create_task(self._stop.asked.wait())
            done, _ = await asyncio.wait({asked, *watched}, return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            for task in done - {asked}:
                task.result()  # a part that ends early is a bug: raise its exception
                raise RuntimeError(f"{task.get_name()} ended before the shutdown")
            try:
                async with asyncio.timeout(settings.shutdown_grace.total_seconds()):
                    await self._end(controllers)
            except TimeoutError:
                log.warning("the shutdown took too long; open requests are cut off")

    async def _end(self, controllers: asyncio.Task[None]) -> None:
        """Stop leading and drain admission, both in parallel."""
        log.info("shutting down", extra={"drain": self._settings.drain.total_seconds()})
        if self._admission is not None:
            self._admission.drain()
        if self._wiring.console is not None:
            self._wiring.console.close()
        self._engine.stop()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hand_over(controllers))
            if self._admission is not None:
                group.create_task(self._serve_on(self._admission))

    async def _serve_on(self, admission: LoopServer) -> None:
        """Answer reviews while the endpoint is withdrawn: for `drain`, and longer while some still arrive.

        They show that callers do not know of the shutdown yet. Limited to a part of the whole shutdown time.
        """
        drain, grace = self._settings.drain.total_seconds(), self._settings.shutdown_grace.total_seconds()
        window = min(_QUIET_SECONDS, drain)
        await asyncio.sleep(drain - window)
        for _ in range(1 + int(max(0.0, grace * _DRAIN_SHARE - drain))):
            answered = admission.answered
            await asyncio.sleep(window)
            if admission.answered == answered:
                return
        log.warning("reviews still arrive: the endpoint was not withdrawn in time")

    async def _hand_over(self, controllers: asyncio.Task[None]) -> None:
        """Let passes end while the lease is still renewed, write the last events, then release the lease."""
        await controllers
        await self._recorder.flush()
        if self._lease is not None:
            self._electing.cancel()
            await asyncio.gather(self._electing, return_exceptions=True)
            await self._lease.release()

    def _jobs(self) -> list[asyncio.Task[None]]:
        """Start the background tasks, which run until cancelled."""
        jobs = [
            asyncio.create_task(self._engine.run_informers(), name="informers"),
            asyncio.create_task(self._watchdog.run(), name="watchdog"),
            asyncio.create_task(self._recorder.run(), name="events"),
            asyncio.create_task(
                tend_memory(self._engine.informers, huge_pages=self._settings.huge_pages), name="memory"
            ),
            *(asyncio.ensure_future(job()) for job in self._wiring.jobs),
        ]
        if self._registration is not None:
            jobs.append(asyncio.create_task(self._registration.run(), name="registration"))
        if self._lease is not None:
            self._electing = asyncio.create_task(self._lease.run(), name="lease")
            jobs.append(self._electing)
        return jobs

    def _make_checks(self) -> list[Check]:
        """Return the checks of readiness, vital ones first."""
        checks = [flag_check("running", lambda: "shutting down" if self._stop.asked.is_set() else None)]
        if self._admission is not None:
            checks.append(Check("tls", Handshake(*self._admission.address).problem))
            checks.append(
                flag_check("certificate usable", lambda: None if self._certificate.usable else _NO_CERTIFICATE)
            )
            checks.append(flag_check("certificate", lambda: self._certificate.problem, vital=False))
        if self._registration is not None:
            checks.append(flag_check("webhook configurations", self._registration.problem, vital=False))
        vital = {id(informer) for informer in self._wiring.admission_informers}
        for informer in self._engine.informers:
            checks += _cache_checks(informer, vital=id(informer) in vital)
        return checks

    def _make_admission(self) -> LoopServer | None:
        settings, admission = self._settings, self._wiring.admission
        if admission is None:
            return None
        bounds = Bounds(
            connections=settings.max_connections,
            per_address=settings.max_connections_per_address,
            request_seconds=settings.request_timeout.total_seconds(),
            keep_alive_seconds=settings.keep_alive.total_seconds(),
        )
        app, listener = at_listener(self._application, "admission"), self._bind(settings.admission_port)
        tls = self._certificate.context
        if not settings.fast_path:
            return LoopServer("admission", app, listener, bounds, tls=tls)
        from webhooks.fast.admission import FastAdmission  # noqa: PLC0415 - loaded where it is switched on
        from webhooks.fast.protocol import at_once  # noqa: PLC0415

        fast = FastAdmission(admission, app)
        return LoopServer("admission", fast, listener, bounds, tls=tls, http=at_once(fast))

    def _metrics_servers(self) -> list[LoopServer]:
        if not self._settings.metrics_auth:
            return []
        app, listener = at_listener(self._application, "metrics"), self._bind(self._settings.metrics_port)
        return [LoopServer("metrics", app, listener, _HEALTH_BOUNDS, tls=self._certificate.open_context)]

    @asynccontextmanager
    async def _certificates(self) -> AsyncIterator[None]:
        if self._admission is None and not self._settings.metrics_auth:
            yield
            return
        from app.certificates import certificates  # noqa: PLC0415 - loaded where something is served over TLS

        async with certificates(self._client, self._settings, self._certificate):
            yield

    def _bind(self, port: int) -> socket.socket:
        listener = bind(self._settings.bind_address, port)
        self._listeners.append(listener)
        return listener


def _cache_checks(informer: Informer, *, vital: bool) -> list[Check]:
    """Return checks of one cache: that it was filled once (admission needs only that), and that its watch works."""

    def filled() -> str | None:
        return None if informer.synced.is_set() else "not filled yet"

    def watched() -> str | None:
        return informer.problem

    plural = informer.kind.plural
    return [
        flag_check(f"cache {plural}", filled, vital=vital),
        flag_check(f"watch {plural}", watched, vital=False),
        flag_check(f"objects {plural}", informer.skipped.problem, vital=False),
    ]


def _make_lease(settings: Settings, client: Client, identity: str) -> Lease | None:
    if not (settings.reconciler and settings.leader_election):
        return None
    return Lease(
        client,
        settings.own_namespace(),
        identity,
        name=settings.lease_name,
        duration=settings.lease_duration,
        renew_period=settings.lease_renew_period,
        write_margin=settings.lease_write_margin,
    )


@asynccontextmanager
async def _background(tasks: list[asyncio.Task[None]]) -> AsyncIterator[set[asyncio.Task[None]]]:
    """Cancel tasks when the block ends."""
    running = set(tasks)
    try:
        yield running
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - optional speed, and not on every platform
    except ImportError:
        return None
    return uvloop.new_event_loop
