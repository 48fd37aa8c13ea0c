"""suite.py ENGINE SUITE NAME,.. OPTION..

The times of one suite of an engine. All suites that are named are measured together, so that they run in the same warm
process: by the first call, and again when a call asks for a suite whose times have been taken already. Prints the CPU
times of client and server together in ms, and the times on the clock, as if for 100 MB and 1,000 connections.
"""

import json
import os
import subprocess
import sys

FILE = "suites.json"

engine, suite, names, *options = sys.argv[1:]


def measured():
    """Rows by engine and suite. An option selects all suites whose names contain its value."""
    wanted = [f"--suite={name}" for name in names.split(",")]
    command = ["watari", "bench", "suites", "--json", "--engine=jsse", "--engine=rustls", *wanted, *options]
    return {f"{row['engine']} {row['suite']}": row for row in json.loads(subprocess.check_output(command))}


rows = {}
if os.path.exists(FILE):
    with open(FILE) as file:
        rows = json.load(file)
if f"{engine} {suite}" not in rows:
    rows = measured()
row = rows.pop(f"{engine} {suite}")
with open(FILE, "w") as file:
    json.dump(rows, file)
if row["error"]:
    sys.exit(row["error"])
scales = {"bulk": 1e8 / row["bulk_bytes"], "new": 1e3 / row["connections"], "reuse": 1e3 / row["connections"]}
result = {name: 1e3 * scale * sum(row[f"{name}_cpu"].values()) for name, scale in scales.items()}
result |= {f"{name}_clock": 1e3 * scale * row[f"{name}_s"] for name, scale in scales.items()}
print(json.dumps(result | {"reused": 100 * row["reused"] / row["connections"]}))
