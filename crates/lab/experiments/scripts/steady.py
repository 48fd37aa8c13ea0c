"""steady.py CSV CONNECTIONS

The mean time Tc in ms of the connections of `watari bench http --csv` that came after the first ones. The first ones come
all at once: with a queue most of them would wait for a shorter time than later ones, and without a queue for the same.
"""

import csv
import json
import sys

with open(sys.argv[1]) as file:
    rows = sorted(csv.DictReader(file), key=lambda row: float(row["opened_s"]))
later = [1000 * float(row["tc_s"]) for row in rows[int(sys.argv[2]) :]]
print(json.dumps({"tc_ms": sum(later) / len(later), "connections": len(later)}))
