#!/usr/bin/env python3
"""A slow stretch of network: `relay.py PORT MILLISECONDS` passes every byte on to that port of 127.0.0.1, so much later, each way.

Says its own port, and at SIGTERM, as one JSON object, how long it really held the request and the first text of its answer, in
seconds by trace id: from the kernel's stamp of their arrival to just before they were sent on.
"""

import heapq
import itertools
import json
import re
import select
import signal
import socket
import struct
import sys
import time

STAMPS = 35  # SO_TIMESTAMPNS of Linux, and the type of what it brings
TRACE, TEXT = re.compile(rb"traceparent: 00-([0-9a-f]{32})", re.I), re.compile(rb'"content":"[^"]')


class End:
    """One socket of a connection that is passed on."""

    def __init__(self, which, up, held):
        self.socket, self.up, self.held, self.other = which, up, held, None
        self.trace = None  # of the request under way
        which.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        which.setsockopt(socket.SOL_SOCKET, STAMPS, 1)

    def fileno(self):
        return self.socket.fileno()

    def receive(self):
        """What has come, and when: the stamp is that of the last segment of it."""
        try:
            piece, extra, _, _ = self.socket.recvmsg(65536, 64)
        except ConnectionError:
            return b"", time.time()
        for level, kind, data in extra:
            if (level, kind) == (socket.SOL_SOCKET, STAMPS):
                seconds, nanos = struct.unpack("@ll", data[: struct.calcsize("@ll")])
                return piece, seconds + nanos / 1e9
        return piece, time.time()

    def pass_on(self, piece, came):
        """Sends on what came here."""
        span = time.time() - came
        if self.up and (found := TRACE.search(piece)):
            self.trace = self.other.trace = found[1].decode()
        if self.trace and (self.up or TEXT.search(piece)):
            ways = self.held.setdefault(self.trace, {})
            if self.up or "down" not in ways:
                ways["up" if self.up else "down"] = span
        try:
            # Pieces of a stream of text are small: they fit into the socket's buffer.
            self.other.socket.sendall(piece) if piece else self.other.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # that side has left


def main(target, delay):
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(f"relay on {listener.getsockname()[1]}", flush=True)
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    ends, due, count, held = set(), [], itertools.count(), {}
    while not ended:
        wait = max(0, due[0][0] - time.time()) if due else 0.2
        # Not epoll: its waits are whole milliseconds, those of select() microseconds.
        for end in select.select([listener, *ends], [], [], wait)[0]:
            if end is listener:
                up = End(listener.accept()[0], True, held)
                down = End(socket.create_connection(("127.0.0.1", target)), False, held)
                up.other, down.other = down, up
                ends |= {up, down}
                continue
            piece, came = end.receive()
            heapq.heappush(due, (came + delay, next(count), end, piece, came))
            if not piece:
                ends.remove(end)
        while due and due[0][0] <= time.time():
            _, _, end, piece, came = heapq.heappop(due)
            end.pass_on(piece, came)
    print(json.dumps(held))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]) / 1e3)
