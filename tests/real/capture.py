"""Reads a packet capture: what each exchange of HTTP/1.1 looked like on the wire, and when.

Knows nothing of the gauge and shares no code with it. Times are the kernel's, in nanoseconds since the Unix epoch.
"""

import bisect
import json
import struct
from dataclasses import dataclass, field

# Link type (of tcpdump.org/linktypes.html) -> (bytes before the IP header, where the protocol stands, IPv4's number there).
LINKS = {1: (14, ">12xH", 0x0800), 113: (16, ">14xH", 0x0800), 276: (20, ">H", 0x0800), 101: (0, None, None)}


@dataclass
class Exchange:
    """One request and its response, as one port saw them."""

    trace: str  # the trace id of the request's `traceparent`
    sent: int  # the segment that carried the request's last byte
    status: int = 0
    events: list = field(default_factory=list)  # (when the segment came that completed it, its data), in order

    def outputs(self):
        """When each output event was complete."""
        return [when for when, data in self.events if is_output(data)]

    def first_output(self):
        """When the first output event was complete; None without one."""
        return next((when for when, data in self.events if is_output(data)), None)


def is_output(data):
    """Whether a chunk of a chat completion carries generated text."""
    if data == b"[DONE]":
        return False
    return any((choice.get("delta") or {}).get("content") for choice in json.loads(data).get("choices", ()))


def exchanges(file, port):
    """Every exchange whose server has this port, in the order of connections."""
    found = []
    for ways in connections(file, port).values():
        if len(ways) == 2:
            found += pair(ways["up"], ways["down"])
    return found


def packets(file):
    """(nanoseconds, link type, bytes) of each packet of a pcap file."""
    with open(file, "rb") as opened:
        data = opened.read()
    for order in "<>":
        magic, link = struct.unpack_from(order + "I16xI", data)
        if magic in (0xA1B23C4D, 0xA1B2C3D4):
            break
    else:
        raise ValueError(f"{file}: no pcap file")
    unit = 1 if magic == 0xA1B23C4D else 1000
    head, at = struct.Struct(order + "IIII"), 24
    while at + 16 <= len(data):
        seconds, fraction, kept, full = head.unpack_from(data, at)
        if kept != full:
            raise ValueError(f"{file}: a packet was cut to {kept} of {full} bytes")
        yield seconds * 1_000_000_000 + fraction * unit, link & 0x0FFFFFFF, data[at + 16 : at + 16 + kept]
        at += 16 + kept


def connections(file, port):
    """Both ways of each connection to this port: {(client's address, its port, its number): {"up": Way, "down": Way}}."""
    found, number = {}, {}
    for when, link, packet in packets(file):
        before, where, ip = LINKS[link]
        if where and struct.unpack_from(where, packet)[0] != ip:
            continue
        length, protocol = struct.unpack_from(">2xH5xB", packet, before)
        tcp = before + (packet[before] & 15) * 4
        if packet[before] >> 4 != 4 or protocol != 6:
            continue
        source, target, seq, offset, flags = struct.unpack_from(">HHI4xBB", packet, tcp)
        payload = packet[tcp + (offset >> 4) * 4 : before + length]
        if port not in (source, target):
            continue
        up = target == port
        client = (packet[before + 12 : before + 16], source) if up else (packet[before + 16 : before + 20], target)
        if flags & 2 and up:  # SYN: the port is used again
            number[client] = number.get(client, 0) + 1
        ways = found.setdefault((*client, number.get(client, 0)), {})
        way = ways.setdefault("up" if up else "down", Way())
        way.segment(when, seq + (flags >> 1 & 1), payload)
    return found


class Way:
    """One direction of a connection: its bytes in order, and when each was there."""

    def __init__(self):
        self.bytes = bytearray()
        self.ends, self.times = [], []  # of the segments that brought something new
        self.next = None  # the sequence number that comes next
        self.early = {}  # segments that came before their turn

    def segment(self, when, seq, payload):
        if not payload:
            return
        if self.next is None:
            self.next = seq
        self.early[seq] = payload
        while self.early:
            # Sequence numbers go round: what lies behind by less than half a turn has been here.
            for seq in list(self.early):
                behind = (self.next - seq) & 0xFFFFFFFF
                if behind < 1 << 31:
                    fresh = self.early.pop(seq)[behind:]
                    if fresh:
                        self.bytes += fresh
                        self.ends.append(len(self.bytes))
                        self.times.append(when)
                        self.next = (self.next + len(fresh)) & 0xFFFFFFFF
                        break
            else:
                return

    def when(self, at):
        """When the byte at this position, and all before it, had come."""
        return self.times[bisect.bisect_right(self.ends, at)]


def pair(up, down):
    """The exchanges of one connection, whose requests come one after the other."""
    found, ask, answer = [], 0, 0
    while ask < len(up.bytes):
        first, headers, ask = head(up.bytes, ask)
        if first is None:
            break
        ask += int(headers.get(b"content-length", 0))
        if ask > len(up.bytes):
            break
        trace = headers.get(b"traceparent", b"--").split(b"-")[1].decode()
        exchange = Exchange(trace, up.when(ask - 1))
        first, headers, answer = head(down.bytes, answer)
        if first is None:
            break
        exchange.status = int(first.split()[1])
        body, places, answer = content(down.bytes, answer, headers)
        if body is None:
            break
        exchange.events = [(down.when(places(end)), data) for end, data in events(body)]
        found.append(exchange)
    return found


def head(data, at):
    """(first line, headers with lower-case names, where the body begins); nothing if it is not whole."""
    end = data.find(b"\r\n\r\n", at)
    if end < 0:
        return None, {}, len(data)
    first, *lines = bytes(data[at:end]).split(b"\r\n")
    split = (line.partition(b":") for line in lines)
    return first, {name.strip().lower(): value.strip() for name, _, value in split}, end + 4


def content(data, at, headers):
    """(body, from a position in it to the one on the wire, where it ends on the wire); nothing if it is not whole."""
    if headers.get(b"transfer-encoding") != b"chunked":
        end = at + int(headers.get(b"content-length", 0))
        return (bytes(data[at:end]), lambda place: at + place, end) if end <= len(data) else (None, None, len(data))
    body, starts, wire = bytearray(), [], []
    while True:
        line = data.find(b"\r\n", at)
        size = int(data[at:line].split(b";")[0], 16) if line > 0 else 0
        if line < 0 or line + 2 + size + 2 > len(data):
            return None, None, len(data)
        at = line + 2
        if size == 0:
            break
        starts.append(len(body))
        wire.append(at)
        body += data[at : at + size]
        at += size + 2

    def places(place):
        chunk = bisect.bisect_right(starts, place) - 1
        return wire[chunk] + place - starts[chunk]

    return bytes(body), places, at + 2


def events(body):
    """(position of its last byte, data) of each event of a stream of server-sent events that has data."""
    at = 0
    while (end := body.find(b"\n\n", at)) >= 0:
        lines = body[at:end].split(b"\n")
        data = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
        at = end + 2
        if data:
            yield at - 1, b"\n".join(data)
