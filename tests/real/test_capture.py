"""The reader of captures is a ruler: it is tried on a capture whose times are known."""

import json
import struct
import tempfile
import unittest
from pathlib import Path

from capture import exchanges

CLIENT, SERVER = 40000, 80
TRACE = "0af7651916cd43dd8448eb211c80319c"
ASK = b"POST /x HTTP/1.1\r\nTraceparent: 00-%s-b7ad6b7169203331-01\r\ncontent-length: 6\r\n\r\nprompt" % TRACE.encode()


def event(delta):
    return b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n"


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
ROLE, FIRST, SECOND = event({"role": "assistant", "content": ""}), event({"content": "one"}), event({"content": "two"})


def packet(when, up, seq, payload, flags=0x18, link=1):
    """A packet of a pcap file with nanoseconds: Ethernet or Linux's cooked header, IPv4, TCP."""
    ports = (CLIENT, SERVER) if up else (SERVER, CLIENT)
    tcp = struct.pack(">HHIIBBHHH", *ports, seq & 0xFFFFFFFF, 0, 5 << 4, flags, 1000, 0, 0) + payload
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0, bytes([127, 0, 0, 1]), bytes([127, 0, 0, 1]))
    frame = {1: bytes(12) + b"\x08\x00", 276: b"\x08\x00" + bytes(18)}[link] + ip + tcp
    return struct.pack("<IIII", when // 10**9, when % 10**9, len(frame), len(frame)) + frame


def read(*packets, link=1):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.pcap"
        file.write_bytes(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, link) + b"".join(packets))
        return exchanges(file, SERVER)


class Captures(unittest.TestCase):
    def test_the_first_output_event_is_complete_with_its_last_byte(self):
        body = chunk(ROLE) + chunk(FIRST)
        cut = len(HEAD + body) - 5  # before the end of the event
        rest = (body + chunk(SECOND) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")[cut - len(HEAD) :]
        for link in (1, 276):
            packets = [
                packet(1_000_000_001, True, 10, ASK[:20], link=link),
                packet(1_000_000_005, True, 30, ASK[20:], link=link),
                packet(1_000_000_100, False, 70, (HEAD + body)[:cut], link=link),
                packet(1_000_000_900, False, 70 + cut, rest, link=link),
            ]
            (found,) = read(*packets, link=link)
            self.assertEqual((found.trace, found.sent, found.status), (TRACE, 1_000_000_005, 200))
            self.assertEqual(found.first_output(), 1_000_000_900)
            self.assertEqual(found.outputs(), [1_000_000_900] * 2)
            self.assertEqual([when for when, _ in found.events], [1_000_000_100] + [1_000_000_900] * 3)

    def test_segments_out_of_order_count_when_the_gap_before_them_closes(self):
        whole = HEAD + chunk(ROLE) + chunk(FIRST) + b"0\r\n\r\n"
        a, b = len(HEAD) + 10, len(whole) - 20
        start = 0xFFFFFFFF - a - 3  # the numbers go round within the answer
        (found,) = read(
            packet(5, True, 1, ASK),
            packet(6, True, 1, ASK),  # sent again
            packet(10, False, start, whole[:a]),
            packet(20, False, start + b, whole[b:]),
            packet(30, False, start, whole[:b]),  # sent again, with what was missing
        )
        self.assertEqual((found.sent, found.first_output()), (5, 30))
        self.assertEqual([when for when, _ in found.events], [30, 30])

    def test_a_connection_carries_one_exchange_after_the_other_and_a_port_several_connections(self):
        answer = HEAD + chunk(FIRST) + b"0\r\n\r\n"
        packets = [packet(1, True, 0, b"", flags=0x02), packet(2, False, 0, b"", flags=0x12)]
        for turn in range(2):
            packets.append(packet(10 + turn * 10, True, 1 + turn * len(ASK), ASK))
            packets.append(packet(15 + turn * 10, False, 1 + turn * len(answer), answer))
        packets += [packet(50, True, 900, b"", flags=0x02), packet(51, True, 901, ASK), packet(58, False, 7, answer)]
        self.assertEqual([found.first_output() - found.sent for found in read(*packets)], [5, 5, 7])

    def test_what_is_not_whole_is_no_exchange(self):
        answer = HEAD + chunk(FIRST) + b"0\r\n\r\n"
        for cut in range(len(answer)):
            self.assertEqual(read(packet(1, True, 1, ASK), packet(2, False, 1, answer[:cut])), [])


if __name__ == "__main__":
    unittest.main()
