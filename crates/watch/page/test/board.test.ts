import assert from "node:assert/strict";
import { test } from "node:test";
import { SILENT_S, keyOf, ofKey, silentSince } from "../src/board.ts";
import { sensor } from "./common.ts";

test("nothing is known of a sensor that is away or silent since its last report", () => {
  assert.equal(silentSince(sensor({ last_report: 999 }), 1_000), null);
  assert.equal(silentSince(sensor({ last_report: 1_001 }), 1_000), null);
  assert.equal(silentSince(sensor({ last_report: 999, away: true }), 1_000), 999);
  assert.equal(silentSince(sensor({ last_report: 1_000 - SILENT_S }), 1_000), 1_000 - SILENT_S);
  assert.equal(silentSince(sensor({ last_report: 1_000 - SILENT_S + 1 }), 1_000), null);
  // A clock that is behind is not silence.
  assert.equal(silentSince(sensor({ last_report: 970, clock_offset_s: -29 }), 1_000), null);
  assert.equal(silentSince(sensor({ last_report: 1_015, clock_offset_s: 30 }), 1_000), 1_015);
});

test("a key says server and sensor, whatever the sensor is called", () => {
  for (const name of ["s", "two words", " ", "a&b=c%20"]) {
    const server = { server: "[2001:db8::7]:80", sensor: name };
    assert.deepEqual(ofKey(keyOf(server)), server);
  }
});
