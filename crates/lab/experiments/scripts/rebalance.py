"""rebalance.py URL ROW.. [--node=PID] [--wait=SECONDS]

A row is NAME:FIRST:SECOND[:leave]. At URL/NAME there are two origins, which say who they are in the field X-Origin. FIRST
clients download from one of them, and SECOND from the other. Measures the rates of all downloads, waits until the node
(a process of Watari) has moved one of each row, or for that time, and measures the rates again. `leave`: a client of
the second origin ends after the move.

Prints JSON for each row: rates in MB/s, gains in percent, the number of moves, and the downloads of each origin.
"""

import argparse
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from urllib.parse import urlsplit

MEASURED_S = 3


class Client:
    """A download in a thread of its own."""

    def __init__(self, url):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = socket.create_connection((url.hostname, url.port or 443), timeout=30)
        self.connection = context.wrap_socket(connection, server_hostname="site.example")
        self.connection.sendall(f"GET {url.path} HTTP/1.1\r\nHost: site.example\r\n\r\n".encode())
        received = b""
        while b"\r\n\r\n" not in received:
            received += self.connection.recv(4096) or sys.exit("no response")
        head, content = received.split(b"\r\n\r\n", 1)
        fields = dict(line.split(": ", 1) for line in head.decode().lower().split("\r\n")[1:])
        self.origin, self.last, self.ends = fields["x-origin"], (time.monotonic(), len(content)), False
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        while not self.ends:
            piece = self.connection.recv(1 << 16)
            if not piece:
                break
            # The time and the number of octets change together.
            self.last = (time.monotonic(), self.last[1] + len(piece))
        self.connection.close()


def rates(clients):
    """In MB/s, from the last piece before the measurement to the last piece in it."""
    before = [client.last for client in clients]
    time.sleep(MEASURED_S)
    after = [client.last for client in clients]
    return [(now[1] - then[1]) / (now[0] - then[0]) / 1e6 for then, now in zip(before, after)]


def pools(node):
    """The downloads of each pool, by its name."""
    with open(f"/proc/{node}/cmdline") as file:
        command = file.read().split("\0")
    socket_path = os.path.join(os.path.dirname(command[command.index("--config") + 1]), "admin.sock")
    output = subprocess.check_output(["watari", "ctl", "--admin", socket_path, "--json", "origins"])
    return {pool["name"]: pool["transfers"] for pool in json.loads(output)}


class Row:
    def __init__(self, url, text):
        self.name, first, second, *more = text.split(":")
        self.leaves = more == ["leave"]
        self.first, self.second = begin(urlsplit(f"{url}/{self.name}"), [int(first), int(second)])

    def clients(self):
        return self.first + self.second

    def after_move(self):
        if self.leaves:
            self.second.pop().ends = True

    def result(self, before, after, transfers):
        at_origins = Counter(transfer["origin"] for transfer in transfers)
        mean = lambda rates: sum(rates) / len(rates)
        return {
            "mean_before": mean(before), "mean_after": mean(after), "mean_gain": 100 * (mean(after) / mean(before) - 1),
            "lowest_before": min(before), "lowest_after": min(after),
            "lowest_gain": 100 * (min(after) / min(before) - 1),
            "moves": sum(transfer["moves"] for transfer in transfers),
            "fewer": min(at_origins.values(), default=0), "more": max(at_origins.values(), default=0),
        }


def begin(url, stay):
    """Clients of which so many are at each origin. Balancers give downloads to the origins in turn."""
    clients = [Client(url) for _ in range(2 * max(stay))]
    names = sorted({client.origin for client in clients})
    if len(names) != 2:
        sys.exit("the downloads are not at two origins")
    kept = []
    for name, count in zip(names, stay):
        there = [client for client in clients if client.origin == name]
        kept.append(there[:count])
        for client in there[count:]:
            client.ends = True
    return kept


def measure(rows):
    """The rates of each row, all measured at the same time."""
    # The origins have noticed by then that clients are gone.
    time.sleep(1)
    measured = rates([client for row in rows for client in row.clients()])
    return [[measured.pop(0) for _ in row.clients()] for row in rows]


def wait_for_moves(rows, node, wait_s):
    deadline = time.monotonic() + wait_s
    waiting = list(rows)
    while waiting and time.monotonic() < deadline:
        time.sleep(0.5)
        now = pools(node)
        for row in [row for row in waiting if any(transfer["moves"] for transfer in now[row.name])]:
            row.after_move()
            waiting.remove(row)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("rows")
    parser.add_argument("--node")
    parser.add_argument("--wait", type=float, default=0)
    asked = parser.parse_args([argument for argument in sys.argv[1:] if argument])
    rows = [Row(asked.url, text) for text in asked.rows.split(",")]
    before = measure(rows)
    wait_for_moves(rows, asked.node, asked.wait)
    after = measure(rows)
    now = pools(asked.node) if asked.node else {}
    results = zip(rows, before, after)
    print(json.dumps({row.name: row.result(then, later, now.get(row.name, [])) for row, then, later in results}))


main()
