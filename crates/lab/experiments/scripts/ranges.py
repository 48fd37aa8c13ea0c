"""ranges.py URL FILE

Requests a range of a file, and the same with a tag of another version (If-Range). Prints JSON, with percentages of what
is as RFC 9110 has it: partial (206 with the right bytes), whole (200 for the other version), tag (a strong tag).
"""

import json
import sys
import urllib.request

url, path = sys.argv[1:]
with open(path, "rb") as file:
    content = file.read()


def get(**fields):
    request = urllib.request.Request(url, headers={name.replace("_", "-"): value for name, value in fields.items()})
    with urllib.request.urlopen(request, timeout=20) as response:
        return response.status, response.headers, response.read()


status, fields, part = get(Range="bytes=1000-250000")
named = fields["Content-Range"] == f"bytes 1000-250000/{len(content)}"
other, _, whole = get(Range="bytes=1000-250000", If_Range='"another"')
tag = fields["ETag"] or "W/"
print(json.dumps({
    "partial": 100 * (status == 206 and named and part == content[1000:250001]),
    "whole": 100 * (other == 200 and whole == content),
    "tag": 100 * (not tag.startswith("W/")),
}))
