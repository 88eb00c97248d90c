#!/usr/bin/env python3
"""A client that holds many streams open and times their events: `gaps.py PORT STREAMS RAMP_SECONDS TOKENS
TOKENS_PER_SECOND FILE`.

Each event's time is the kernel's receive stamp of its segment at this client's socket, so that how busy this client
is stands in none of them. Says "open" once every stream flows, and ends when its standard input does. FILE then has
pairs of doubles: when a gap ended (Unix seconds), and how long it was. A gap counts only between two reads of one
event each.
"""

import array
import json
import resource
import select
import socket
import struct
import sys
import time

SO_TIMESTAMPNS = 35  # the standard library has no name for it
BODY = json.dumps(
    {"model": "sim-1", "stream": True, "messages": [{"role": "user", "content": "how far can one go"}]}
).encode()


def connect(port):
    stream = socket.create_connection(("127.0.0.1", port))
    stream.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return stream


def ask(stream, port, tokens, speed):
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(BODY)}\r\nx-sim-tokens: {tokens}\r\nx-sim-tps: {speed}\r\nx-sim-ttft-ms: 50\r\n\r\n"
    )
    stream.sendall(head.encode() + BODY)


def stamp_of(ancillary):
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = struct.unpack("qq", data[:16])
            return seconds + nanoseconds / 1e9
    return None


def main(port, streams, ramp, tokens, speed, file):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    poll, open_streams, last = select.epoll(), {}, {}
    poll.register(sys.stdin, select.EPOLLIN | select.EPOLLHUP)
    found = array.array("d")
    began, flowing, together = time.monotonic(), 0, 0
    while True:
        # One after the other, so that their events are spread over time as well.
        while len(open_streams) < streams and time.monotonic() - began >= len(open_streams) * ramp / streams:
            stream = connect(port)
            poll.register(stream, select.EPOLLIN)
            open_streams[stream.fileno()] = stream
            ask(stream, port, tokens, speed)
        for number, _ in poll.poll(0.002 if len(open_streams) < streams else 1):
            if number == sys.stdin.fileno():
                with open(file, "wb") as out:
                    found.tofile(out)
                print(json.dumps({"gaps": len(found) // 2, "reads of several events": together}), flush=True)
                return
            piece, ancillary, _, _ = open_streams[number].recvmsg(65536, 128)
            if not piece or number not in last and not piece.startswith(b"HTTP/1.1 200 "):
                sys.exit(f"a stream ended, or had no answer: {piece[:200]!r}")
            events, at = piece.count(b"data: "), stamp_of(ancillary)
            if at is None:
                sys.exit("the kernel gives no receive stamps")
            if number not in last:
                flowing += 1
                if flowing == streams:
                    print("open", flush=True)
            elif events == 1 and last[number] is not None:
                found.extend((at, at - last[number]))
            together += events > 1
            last[number] = at if events == 1 else None


if __name__ == "__main__":
    words = sys.argv[1:]
    main(int(words[0]), int(words[1]), float(words[2]), int(words[3]), float(words[4]), words[5])
