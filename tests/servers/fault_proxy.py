"""A reverse proxy on loopback that breaks the k-th request of a method in a chosen way.

    with FaultProxy(port) as proxy:
        proxy.break_request("lost-reply", method="PUT", nth=2)
        emulator.opened(port=proxy.port).create("key", b"data")

Faults: ``kill-before`` and ``kill-after`` (forwarding) call the rule's ``kill`` and answer nothing; ``lost-reply``
forwards and closes; ``503`` (any status) answers without forwarding; ``reset`` resets without forwarding; ``slow``
waits, then does as asked; ``truncated-upload`` forwards half a body and closes; ``truncated-reply`` sends half.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import struct
import threading

FAULTS = ("lost-reply", "503", "reset", "slow", "truncated-upload", "truncated-reply")
KILLS = ("kill-before", "kill-after")
SLOW_SECONDS = 0.3
LONGEST_HEAD = 1 << 16
FOREVER = 1 << 30


@dataclasses.dataclass
class Rule:
    fault: str
    method: str | None
    nth: int
    times: int
    kill: object
    seconds: float
    seen: int = 0

    def hits(self, method):
        """Count a request, and tell whether this is one to break."""
        if self.method not in {None, method}:
            return False
        self.seen += 1
        return self.nth <= self.seen < self.nth + self.times


@dataclasses.dataclass(frozen=True)
class Message:
    """A request or a reply as it came over the wire."""

    first: str
    head: bytes
    body: bytes

    @property
    def method(self):
        return self.first.partition(" ")[0]


class FaultProxy:
    """Forwards to ``target``, a port of loopback; ``seen`` holds the first line of every request."""

    def __init__(self, target):
        self.target = target
        self.seen = []
        self._rules = []
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="fault-proxy", daemon=True)

    def __enter__(self):
        self._thread.start()
        assert self._listening.wait(10)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def break_request(self, fault, *, method=None, nth=1, times=1, kill=None, seconds=SLOW_SECONDS):
        """Break ``times`` requests from the ``nth`` of that method on, counted from now."""
        self._rules.append(Rule(fault, method, nth, times, kill, seconds))

    def mend(self):
        """Forget every rule and what was seen."""
        self._rules.clear()
        self.seen.clear()

    def _serve(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._loop.close()

    async def _listen(self):
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=LONGEST_HEAD)
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        await self._stop.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader, writer):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._exchange(reader, writer):
                pass
        writer.close()

    async def _exchange(self, reader, writer):
        """Serve one request; False ends the connection."""
        request = await _read_message(reader, "")
        if request is None:
            return False
        self.seen.append(request.first)
        broken = [rule for rule in self._rules if rule.hits(request.method)]
        if not broken:
            reply = await self._forward(request)
            writer.write(reply.head + reply.body)
            await writer.drain()
            return True
        rule = broken[0]
        handler = getattr(self, "_" + rule.fault.replace("-", "_"), self._status)
        return await handler(rule, request, writer)

    async def _forward(self, request, *, share=1.0):
        """Send a request on, on a connection of its own, and return the whole reply."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.target, limit=LONGEST_HEAD)
        try:
            writer.write(request.head + request.body[: int(len(request.body) * share)])
            await writer.drain()
            if share < 1:
                return None
            return await _read_message(reader, request.method)
        finally:
            writer.close()

    async def _kill_before(self, rule, request, writer):
        rule.kill()
        return False

    async def _kill_after(self, rule, request, writer):
        await self._forward(request)
        rule.kill()
        return False

    async def _lost_reply(self, rule, request, writer):
        await self._forward(request)
        return False

    async def _reset(self, rule, request, writer):
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        return False

    async def _slow(self, rule, request, writer):
        await asyncio.sleep(rule.seconds)
        reply = await self._forward(request)
        writer.write(reply.head + reply.body)
        await writer.drain()
        return True

    async def _truncated_upload(self, rule, request, writer):
        if len(request.body) > 1:
            await self._forward(request, share=0.5)
        return False

    async def _truncated_reply(self, rule, request, writer):
        reply = await self._forward(request)
        whole = reply.head + reply.body
        cut = len(reply.head) + len(reply.body) // 2 if len(reply.body) > 1 else len(reply.head) // 2
        writer.write(whole[:cut])
        await writer.drain()
        return False

    async def _status(self, rule, request, writer):
        body = b"<Error><Code>SlowDown</Code></Error>"
        writer.write(b"HTTP/1.1 %s Broken\r\nContent-Length: %d\r\n\r\n" % (rule.fault.encode(), len(body)))
        writer.write(b"" if request.method == "HEAD" else body)
        await writer.drain()
        return True


async def _read_message(reader, method):
    """Read a request (``method`` is empty), or the reply to ``method``; None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    if headers.get("expect") == "100-continue":
        raise OSError("a client that waits for 100-continue is not served")
    return Message(first, head, await _read_body(reader, method, first, headers))


async def _read_body(reader, method, first, headers):
    status = first.split(" ")[1] if first.startswith("HTTP/") else ""
    if method == "HEAD" or status in {"204", "304"}:
        return b""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _read_chunked(reader)
    return await reader.readexactly(int(headers.get("content-length", 0)))


async def _read_chunked(reader):
    """Return the body as it is on the wire, sizes and all: it is only passed on."""
    body = b""
    while True:
        size = await reader.readuntil(b"\r\n")
        data = await reader.readexactly(int(size, 16) + 2)
        body += size + data
        if int(size, 16) == 0:
            return body
