"""download.py URL FILE [--repeat=N] [--moves=N | --cuts=N] [--node=PID] [--origins=URL=PID,..]

Downloads URL, compares the bytes with FILE, and prints JSON. With moves, it orders the node (a process of Watari) to
continue the download from another origin, at equal distances. With cuts, it kills the workers of the origin that serves
the download; of all origins if there is no node to ask. Empty arguments do not count.

seconds     of a download, on average, with the connection and the TLS handshake
exact       the downloads that had all bytes, in percent
pause_s     the longest time without a byte, after the first one
moves       how often the last download continued from another origin, as the node counts
bytes       that the last download had
mb_per_s    the rate of a whole download
"""

import argparse
import json
import mmap
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

PIECE_LEN = 1 << 18
# How long a move may take to begin.
MOVE_S_MAX = 2


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("file")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--moves", type=int, default=0)
    parser.add_argument("--cuts", type=int, default=0)
    parser.add_argument("--node")
    parser.add_argument("--origins", default="")
    return parser.parse_args([argument for argument in sys.argv[1:] if argument])


def connect(url):
    port = url.port or (443 if url.scheme == "https" else 80)
    connection = socket.create_connection((url.hostname, port), timeout=30)
    if url.scheme != "https":
        return connection
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(connection, server_hostname="site.example")


def control(node, *words):
    """The output of `watari ctl` for the node with this process id."""
    with open(f"/proc/{node}/cmdline") as file:
        command = file.read().split("\0")
    socket_path = os.path.join(os.path.dirname(command[command.index("--config") + 1]), "admin.sock")
    return subprocess.check_output(["watari", "ctl", "--admin", socket_path, "--json", *words])


def transfers(node):
    return [transfer for pool in json.loads(control(node, "origins")) for transfer in pool["transfers"]]


def move(node):
    for transfer in transfers(node):
        control(node, "origins", "move", str(transfer["id"]))


def cut(asked):
    serving = {transfer["origin"] for transfer in transfers(asked.node)} if asked.node else None
    for origin in asked.origins.split(","):
        url, parent = origin.rsplit("=", 1)
        if serving is None or url in serving:
            kill_children(parent)


def act(asked, seen):
    """A move or a cut. Appends the number of moves that the node then counts."""
    cut(asked) if asked.cuts else move(asked.node)
    deadline = time.monotonic() + MOVE_S_MAX
    while asked.node and time.monotonic() < deadline:
        moves = sum(transfer["moves"] for transfer in transfers(asked.node))
        if moves > sum(seen):
            seen.append(moves - sum(seen))
            return
        time.sleep(0.01)


def kill_children(parent):
    found = subprocess.run(["pgrep", "-P", parent], stdout=subprocess.PIPE, text=True)
    for child in found.stdout.split():
        os.kill(int(child), signal.SIGKILL)


def request(url):
    """The connection, and what came after the head of the response; or nothing without a response."""
    connection = connect(url)
    connection.sendall(f"GET {url.path} HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n\r\n".encode())
    received = b""
    while b"\r\n\r\n" not in received:
        more = connection.recv(PIECE_LEN)
        if not more:
            return connection, b""
        received += more
    head, content = received.split(b"\r\n\r\n", 1)
    if head.split(b" ", 2)[1] != b"200":
        raise SystemExit(head.decode(errors="replace"))
    return connection, content


def download(asked, expected):
    """Seconds, the number of right bytes from the start, the longest pause, and the number of moves."""
    length, steps = len(expected), asked.moves + asked.cuts
    begun = time.monotonic()
    connection, content = request(urlsplit(asked.url))
    buffer = memoryview(bytearray(PIECE_LEN))
    buffer[: len(content)] = content
    position, count, done, pause_s, last = 0, len(content), 0, 0.0, time.monotonic()
    acting, seen = [], []
    while buffer[:count] == expected[position : position + count]:
        position += count
        if position == length:
            break
        if done < steps and position > (done + 1) * length / (steps + 1):
            # The download goes on meanwhile.
            acting.append(threading.Thread(target=act, args=(asked, seen)))
            acting[-1].start()
            done += 1
        count = receive(connection, buffer)
        now = time.monotonic()
        pause_s, last = max(pause_s, now - last), now
        if count == 0:
            break
    seconds = time.monotonic() - begun
    connection.close()
    for thread in acting:
        thread.join()
    return seconds, position, pause_s, sum(seen)


def receive(connection, buffer):
    try:
        return connection.recv_into(buffer)
    except OSError:
        return 0


def main():
    asked = arguments()
    with open(asked.file, "rb") as file:
        expected = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    taken = [download(asked, expected) for _ in range(asked.repeat)]
    seconds = sum(one[0] for one in taken) / len(taken)
    print(json.dumps({
        "seconds": seconds,
        "exact": 100 * sum(one[1] == len(expected) for one in taken) / len(taken),
        "pause_s": max(one[2] for one in taken),
        "moves": taken[-1][3],
        "bytes": taken[-1][1],
        "mb_per_s": len(expected) / seconds / 1e6,
    }))


main()
