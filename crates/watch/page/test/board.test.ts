import assert from "node:assert/strict";
import { test } from "node:test";
import { UNHEARD_S, keyOf, ofKey, unheardSince } from "../src/board.ts";
import { sensor } from "./common.ts";

test("of a sensor that is away or silent nothing is known since it was heard", () => {
  assert.equal(unheardSince(sensor({ heard: 999 }), 1_000), null);
  assert.equal(unheardSince(sensor({ heard: 1_001 }), 1_000), null);
  assert.equal(unheardSince(sensor({ heard: 999, away: true }), 1_000), 999);
  assert.equal(unheardSince(sensor({ heard: 1_000 - UNHEARD_S }), 1_000), 1_000 - UNHEARD_S);
  assert.equal(unheardSince(sensor({ heard: 1_000 - UNHEARD_S + 1 }), 1_000), null);
  // A clock that is behind is not silence.
  assert.equal(unheardSince(sensor({ heard: 970, clock_offset_s: -29 }), 1_000), null);
  assert.equal(unheardSince(sensor({ heard: 1_015, clock_offset_s: 30 }), 1_000), 1_015);
});

test("a key says server and sensor, whatever the sensor is called", () => {
  for (const name of ["s", "two words", " ", "a&b=c%20"]) {
    const server = { server: "[2001:db8::7]:80", sensor: name };
    assert.deepEqual(ofKey(keyOf(server)), server);
  }
});
