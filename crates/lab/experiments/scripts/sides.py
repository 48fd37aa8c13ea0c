"""sides.py CLIENT-SIDE SERVER-SIDE [CAPTURE]

What two processes of `watari watch live --json` have seen so far; they are named by their process ids. Connections whose
close takes longer are not among them yet. CAPTURE is a process of dumpcap at the server side. Prints JSON for `client`
and `server`:

arrivals      connections
per_s         arrivals in a second, from the first one to the last end
at_once       the most connections that were open at a time
first_s       arrivals in the first second
normal        connections whose server closed them after the content (S_NORMAL), in percent
delivered     connections with all content, whoever closed them, in percent
requests_at_once    of the server, with CAPTURE: the most requests that had no complete answer at a time
"""

import json
import os
import subprocess
import sys


def connections(pid):
    with open(os.readlink(f"/proc/{pid}/fd/1")) as lines:
        return [json.loads(line) for line in lines]


def requests(pid):
    """Begin and end of the requests in a capture."""
    with open(f"/proc/{pid}/cmdline") as file:
        command = file.read().split("\0")
    output = subprocess.check_output(["watari", "watch", "pcap", "--json", "--requests", command[command.index("-w") + 1]])
    seen = [json.loads(line) for line in output.splitlines()]
    return [(one["asked"], one["asked"] + one["response_s"]) for one in seen if one["response_s"] is not None]


def at_once(spans):
    changes = [(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans]
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def side(pid):
    seen = connections(pid)
    if not seen:
        return {"arrivals": 0, "per_s": 0, "at_once": 0, "first_s": 0, "normal": 100, "delivered": 100}
    begun = min(one["start"] for one in seen)
    ended = max(one["start"] + one["duration_s"] for one in seen)
    share = lambda count: 100 * count / len(seen)
    return {
        "arrivals": len(seen),
        "per_s": len(seen) / (ended - begun),
        "at_once": at_once([(one["start"], one["start"] + one["duration_s"]) for one in seen]),
        "first_s": sum(one["start"] < begun + 1 for one in seen),
        "normal": share(sum(one["ending"] == "S_NORMAL" for one in seen)),
        "delivered": share(sum(bool(one["delivered"]) for one in seen)),
    }


sides = {"client": side(sys.argv[1]), "server": side(sys.argv[2])}
if sys.argv[3:]:
    sides["server"]["requests_at_once"] = at_once(requests(sys.argv[3]))
print(json.dumps(sides))
