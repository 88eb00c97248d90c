#!/usr/bin/env python3
"""A slow stretch of network: `relay.py PORT MILLISECONDS` passes on every byte to that port of 127.0.0.1, so much later, each way.

Says its own port, and at SIGTERM, as one JSON object, how long it really held what it passed on.
"""

import heapq
import itertools
import json
import select
import signal
import socket
import sys
import time


def main(target, delay):
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(f"relay on {listener.getsockname()[1]}", flush=True)
    ended = False

    def end(*_):
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    other, way = {}, {}  # the socket that what comes here goes to, and which way that is
    due, count = [], itertools.count()  # (when, tie break, socket it goes to, bytes, when it came, way)
    held = {"up": [], "down": []}

    while not ended:
        wait = max(0, due[0][0] - time.monotonic()) if due else 0.2
        # Not epoll: its waits are whole milliseconds, those of select() microseconds.
        ready, _, _ = select.select([listener, *other], [], [], wait)
        now = time.monotonic()
        for source in ready:
            if source is listener:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", target))
                for one, its, name in ((client, server, "up"), (server, client, "down")):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    other[one], way[one] = its, name
                continue
            try:
                piece = source.recv(65536)
            except ConnectionError:
                piece = b""
            heapq.heappush(due, (now + delay, next(count), other[source], piece, now, way[source]))
            if not piece:
                del other[source]
        while due and due[0][0] <= time.monotonic():
            _, _, to, piece, came, name = heapq.heappop(due)
            try:
                # Pieces of a stream of text are small: they fit into the socket's buffer.
                to.sendall(piece) if piece else to.shutdown(socket.SHUT_WR)
            except OSError:
                continue
            if piece:
                held[name].append(time.monotonic() - came)
    print(json.dumps({name: {"pieces": len(all_of), "mean_s": sum(all_of) / max(1, len(all_of))} for name, all_of in held.items()}))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]) / 1e3)
