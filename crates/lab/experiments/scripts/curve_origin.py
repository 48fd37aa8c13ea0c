"""curve_origin.py ADDRESS PORTS FILE NAME BYTES_PER_S CURVE

Origins at several ports. Their total rate depends on the number of their downloads: CURVE has the totals for 1, 2, 3, .. downloads as
multiples of BYTES_PER_S, separated by commas. The last one also applies to more downloads. All downloads have the same
share. They serve FILE at any path, also in parts, and call themselves NAME in the field X-Origin.
"""

import os
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TICK_S = 0.02
# How far a download may catch up after a delay of the machine.
LATE_S_MAX = 0.25
# Shorter answers are no downloads: the agent compares origins with them.
SHORT_LEN_MAX = 1 << 16

address, ports, path, name, bytes_per_s, curve = sys.argv[1:]
curve = [float(total) * float(bytes_per_s) for total in curve.split(",")]
length = os.path.getsize(path)


class Origin(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port):
        super().__init__((address, port), Handler)
        self.running, self.lock = 0, threading.Lock()

    def add(self, count):
        with self.lock:
            self.running += count

    def share(self):
        running = max(self.running, 1)
        return curve[min(running, len(curve)) - 1] / running


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    tag = f'"{length:x}"'

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        start, end = self.answer()
        with open(path, "rb") as file:
            file.seek(start)
            if end - start <= SHORT_LEN_MAX:
                self.wfile.write(file.read(end - start))
            else:
                self.download(file, end - start)

    def answer(self):
        """Sends the head. Returns the range that is requested, or all."""
        start, end, status = 0, length, 200
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked and self.headers.get("If-Range", self.tag) == self.tag:
            start, end, status = int(asked[1]), min(int(asked[2] or length - 1) + 1, length), 206
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{length}")
        for field, value in [("ETag", self.tag), ("Accept-Ranges", "bytes"), ("Content-Length", end - start),
                             ("Content-Type", "application/octet-stream"), ("X-Origin", name)]:
            self.send_header(field, value)
        self.end_headers()
        return start, end

    def download(self, file, left):
        self.server.add(1)
        paid = time.monotonic()
        try:
            while left:
                time.sleep(TICK_S)
                now, rate = time.monotonic(), self.server.share()
                paid = max(paid, now - LATE_S_MAX)
                piece = file.read(min(left, int((now - paid) * rate)))
                self.wfile.write(piece)
                paid += len(piece) / rate
                left -= len(piece)
        except OSError:
            self.close_connection = True
        finally:
            self.server.add(-1)

    def log_message(self, *_):
        pass


for port in ports.split(","):
    threading.Thread(target=Origin(int(port)).serve_forever).start()
