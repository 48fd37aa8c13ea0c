"""enma-points.py LIMIT COMMAND..    the picture of the monitor: a line for each second in which connections ended

COMMAND is `watari watch live --json ..`, which prints a line for each connection. A line here has the shares of those that
ended in a second, and whether aborts and timeouts together are above LIMIT.
"""

import collections
import json
import signal
import subprocess
import sys


def main():
    limit, command = float(sys.argv[1]), sys.argv[2:]
    monitor = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    signal.signal(signal.SIGTERM, lambda *_: monitor.terminate())
    seconds = collections.defaultdict(lambda: [0, 0, 0])
    for line in monitor.stdout:
        connection = json.loads(line)
        kind = ending(connection)
        if kind is not None:
            seconds[int(connection["start"] + connection["duration_s"])][kind] += 1
    for second in sorted(seconds):
        print(json.dumps(point(second, seconds[second], limit)))


def ending(connection):
    """0: delivered, 1: the client's abort, 2: timeout. None: it had no request."""
    if not connection["requests"]:
        return None
    if connection["delivered"]:
        return 0
    return {"C_NORMAL": 1, "C_RESET": 1, "TIMEOUT": 2}.get(connection["ending"])


def point(second, counts, limit):
    total = sum(counts)
    shares = dict(zip(("s_normal", "client_abort", "timeout"), (count / total for count in counts)))
    region = "saturated" if 1 - shares["s_normal"] > limit else "normal"
    return {"second": second, "ended": total, "shares": shares, "region": region}


main()
