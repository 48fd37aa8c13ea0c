"""enma-learn.py learn CAPTURE LIMIT    learns from a capture of a normal server which shares are normal
enma-learn.py judge CAPTURE LIMIT    prints how many seconds of a capture are above that limit

LIMIT is a file. The rule is that of `watari watch pcap --learn`, with seconds in place of minutes: the mean plus three
standard deviations, and at least 5 points above the mean.
"""

import json
import os
import statistics
import subprocess
import sys

IN_PERCENT = 100
POINTS_MIN = 0.05


def main():
    action, capture, file = sys.argv[1:]
    cut = [1 - point["shares"]["s_normal"] for point in points(capture)]
    if action == "learn":
        mean = statistics.fmean(cut)
        limit = mean + max(3 * statistics.pstdev(cut), POINTS_MIN)
        with open(file, "w") as output:
            output.write(str(limit))
    with open(file) as stored:
        limit = float(stored.read())
    above = sum(share > limit for share in cut) / len(cut)
    largest = max(cut)
    values = {"limit": limit, "above": above, "mean": statistics.fmean(cut), "largest": largest}
    print(json.dumps({name: value * IN_PERCENT for name, value in values.items()}))


def points(capture):
    script = os.path.join(os.path.dirname(sys.argv[0]), "enma-points.py")
    watch = ["watari", "watch", "pcap", "--json", "--port", "80", "--timeout", "2s", capture]
    output = subprocess.run([sys.executable, script, "1", *watch], check=True, stdout=subprocess.PIPE).stdout
    return [json.loads(line) for line in output.splitlines()]


main()
