"""Answers that leave together: none is lost, none overtakes another, one that is alone does not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import uvloop

from app.connections import Bounds
from app.server import LoopServer
from tests.unit.app.test_app_servers import certificate, exchange, open_to
from tests.unit.webhooks.fast.test_short_path import AtOnceApp, answers, post, running
from webhooks.fast.outbox import MOST_TOGETHER, Outbox


class Caller:
    """A connection with requests, as far as an outbox knows it."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.told: list[bytes] = []
        self.gone = False
        self.goes_the_usual_way = False

    def answer(self) -> bytes | None:
        return None if self.goes_the_usual_way else self.asked.pop(0)

    @property
    def transport(self) -> asyncio.Transport:
        return cast(asyncio.Transport, self)

    @transport.setter
    def transport(self, _: asyncio.Transport) -> None:
        raise AssertionError("a transport is never replaced")

    def write(self, data: bytes) -> None:
        self.told.append(data)

    def is_closing(self) -> bool:
        return self.gone


class Turns:
    """An outbox on a loop whose clock does not move until its turn ends."""

    def __init__(self) -> None:
        self.now = 0.0
        self.soon: list[Callable[[], None]] = []
        self.outbox = Outbox()

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def ask(self, caller: Caller, what: bytes) -> None:
        caller.asked.append(what)
        self.outbox.ask(cast(asyncio.AbstractEventLoop, self), caller)

    def end(self) -> None:
        self.now += 0.001
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


def test_the_first_of_a_turn_is_answered_at_once_and_the_others_with_its_end() -> None:
    turns, callers = Turns(), [Caller() for _ in range(4)]
    for caller in callers:
        turns.ask(caller, b"it")
    assert [caller.told for caller in callers] == [[b"it"], [], [], []]
    turns.end()
    assert [caller.told for caller in callers] == [[b"it"]] * 4
    for _ in range(3):  # each alone in its turn
        turns.ask(callers[0], b"again")
        assert callers[0].told[-1] == b"again"
        assert turns.soon == []
        turns.end()


def test_few_wait_for_each_other() -> None:
    turns, caller = Turns(), Caller()
    for number in range(MOST_TOGETHER):
        turns.ask(caller, b"%d" % number)
    assert caller.told == [b"0"]
    turns.ask(caller, b"last")
    assert caller.told == [b"%d" % number for number in range(MOST_TOGETHER)] + [b"last"]


def test_what_waits_is_not_overtaken_where_the_clock_moves_first() -> None:
    turns, caller = Turns(), Caller()
    turns.ask(caller, b"1")
    turns.ask(caller, b"2")
    turns.now += 0.001
    turns.ask(caller, b"3")
    turns.end()
    assert caller.told == [b"1", b"2", b"3"]


def test_a_caller_that_has_gone_or_takes_another_path_harms_no_other() -> None:
    turns, first, gone, usual, last = Turns(), Caller(), Caller(), Caller(), Caller()
    for caller in (first, gone, usual, last):
        turns.ask(caller, b"it")
    gone.gone = usual.goes_the_usual_way = True
    turns.end()
    assert [caller.told for caller in (first, gone, usual, last)] == [[b"it"], [], [], [b"it"]]


def on_uvloop(story: object) -> None:
    """Run with the loop of the product, whose clock does not move within a turn."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story)  # type: ignore[arg-type] # a coroutine


def test_many_connections_at_once_are_all_answered() -> None:
    async def ask(server: LoopServer, number: int) -> None:
        reader, writer = await open_to(server, tls=True)
        for turn in range(20):
            body = b"%d-%d" % (number, turn)
            assert (await exchange(reader, writer, body))[2] == body
        writer.close()

    async def story() -> None:
        app = AtOnceApp()
        async with running(app, Bounds(), certificate().context) as server:
            await asyncio.gather(*[ask(server, number) for number in range(3 * MOST_TOGETHER)])
        assert len(app.at_once) == 60 * MOST_TOGETHER

    on_uvloop(story())


def test_answers_come_before_the_end_of_their_connection() -> None:
    """However it ends: by bytes that are not HTTP, by the other side, by the server."""

    async def told(server: LoopServer, sent: bytes, *, half_closed: bool = False) -> bytes:
        reader, writer = await open_to(server)
        writer.write(sent)
        if half_closed:
            writer.write_eof()
        try:
            return await asyncio.wait_for(reader.read(), 5)
        finally:
            writer.close()

    async def story() -> None:
        three = post(b"one") + post(b"two") + post(b"three")
        async with running(AtOnceApp(), Bounds()) as server:
            said = await told(server, three + b"no HTTP\r\n\r\n")
            assert [said.count(word) for word in (b"\r\none", b"\r\ntwo", b"\r\nthree", b" 400 ")] == [1] * 4
            assert said.index(b"\r\nthree") < said.index(b" 400 ")
            said = await told(server, three, half_closed=True)
            assert [said.count(word) for word in (b"\r\none", b"\r\ntwo", b"\r\nthree")] == [1] * 3

    on_uvloop(story())


def test_the_usual_way_keeps_the_order_and_a_target_that_is_none_is_a_400() -> None:
    class Picky(AtOnceApp):
        """Only the root is answered at once."""

        def answer_now(self, target: bytes, body: bytearray) -> bytes | object | None:
            return super().answer_now(target, body) if target == b"/" else None

    async def story() -> None:
        async with running(Picky(), Bounds()) as server:
            reader, writer = await open_to(server)
            writer.write(post(b"one") + post(b"two") + post(b"later") + post(b"three") + post(b"four"))
            assert await answers(reader, 5) == [b"one", b"two", b"later", b"three", b"four"]
            writer.close()
            for before in (b"", post(b"one"), post(b"one") + post(b"two")):
                reader, writer = await open_to(server)
                writer.write(before + post(b"bad").replace(b"POST / ", b"POST http://a:99999999/ "))
                said = await asyncio.wait_for(reader.read(), 5)
                assert (said.count(b" 200 "), said.count(b" 400 ")) == (before.count(b"POST"), 1)
                writer.close()

    on_uvloop(story())


def test_the_end_of_a_server_loses_no_answer() -> None:
    class Ends(AtOnceApp):
        """The server ends its connections in the same turn as the answers."""

        server: LoopServer

        def answer_now(self, target: bytes, body: bytearray) -> bytes | object | None:
            if body == b"two":
                for connection in list(self.server.server_state.connections):
                    asyncio.get_running_loop().call_soon(connection.shutdown)
            return super().answer_now(target, body)

    async def story() -> None:
        app = Ends()
        async with running(app, Bounds()) as app.server:
            reader, writer = await open_to(app.server)
            writer.write(post(b"one") + post(b"two") + post(b"three"))
            assert await answers(reader, 3) == [b"one", b"two", b"three"]
            assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()

    on_uvloop(story())
