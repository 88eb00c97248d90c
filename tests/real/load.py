#!/usr/bin/env python3
"""A client for many streams at a time: `load.py PORT SLOTS SECONDS TAG TOKENS TOKENS_PER_SECOND TTFT_MS TTFT_MS`.

Each slot is a connection that asks for one stream after the other, of so many tokens, each with its own trace id and a TTFT
drawn between the two. It measures nothing itself. Prints one JSON object: what was asked and what came.
"""

import json
import random
import selectors
import socket
import sys
import time

BODY = json.dumps({
    "model": "sim-1",
    "stream": True,
    "stream_options": {"include_usage": True},
    "messages": [{"role": "user", "content": "how far can one go " * 20}],
}).encode()  # fmt: skip
END = b"\r\n0\r\n\r\n"


class Slot:
    """One connection."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.fresh, self.tail = True, b""

    def ask(self, port, trace, tokens, speed, ttft):
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(BODY)}\r\ntraceparent: 00-{trace}-{trace[:16]}-01\r\nx-sim-tokens: {tokens}\r\n"
            f"x-sim-tps: {speed}\r\nx-sim-ttft-ms: {ttft:.3f}\r\n\r\n"
        )
        self.fresh, self.tail = True, b""
        self.socket.sendall(head.encode() + BODY)


def main(port, slots, seconds, tag, tokens, speed, least, most):
    chance = random.Random(int(tag))
    selector = selectors.DefaultSelector()
    asked = done = read = 0
    cycle = (least + most) / 2e3 + (tokens - 1) / speed

    def ask(slot):
        nonlocal asked
        asked += 1
        slot.ask(port, f"{int(tag):016x}{asked:016x}", tokens, speed, chance.uniform(least, most))

    began, idle, open_slots = time.monotonic(), slots, 0
    while True:
        now = time.monotonic() - began
        # They begin one after the other, so that their ends, too, are spread.
        while idle and now >= (slots - idle) * min(cycle, seconds) / slots:
            slot = Slot(port)
            selector.register(slot.socket, selectors.EVENT_READ, slot)
            idle, open_slots = idle - 1, open_slots + 1
            ask(slot)
        if not idle and not open_slots:
            break
        if now > seconds + cycle + 20:
            sys.exit(f"{open_slots} streams did not end")
        for key, _ in selector.select(0.002 if idle else 1):
            slot = key.data
            piece = slot.socket.recv(65536)
            read += len(piece)
            if not piece or slot.fresh and not piece.startswith(b"HTTP/1.1 200 "):
                sys.exit(f"no answer: {piece[:200]!r}")
            slot.fresh, slot.tail = False, (slot.tail + piece)[-len(END) :]
            if slot.tail == END:
                done += 1
                if time.monotonic() - began < seconds:
                    ask(slot)
                else:
                    selector.unregister(slot.socket)
                    slot.socket.close()
                    open_slots -= 1
    print(json.dumps({"asked": asked, "done": done, "bytes": read, "seconds": time.monotonic() - began}))


if __name__ == "__main__":
    words = sys.argv[1:]
    main(int(words[0]), int(words[1]), float(words[2]), words[3], int(words[4]), float(words[5]), float(words[6]), float(words[7]))
