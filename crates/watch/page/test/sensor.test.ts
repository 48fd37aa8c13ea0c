import assert from "node:assert/strict";
import { test } from "node:test";
import { sensorHealth } from "../src/sensor.ts";
import { sensor } from "./common.ts";

const leftOut = (parts: Parameters<typeof sensor>[0]) =>
  sensorHealth(sensor(parts), 1_000).filter((part) => part.includes("too many"));

test("events and server seconds are counted apart", () => {
  const events = "2,000 events at servers that are not watched, because there are too many";
  const seconds = "7 server seconds left out of reports, because there were too many servers";
  assert.deepEqual(leftOut({ unwatched: 2_000, uncounted: 7 }), [events, seconds]);
  assert.deepEqual(leftOut({ unwatched: 2_000 }), [events]);
  assert.deepEqual(leftOut({ uncounted: 7 }), [seconds]);
  assert.deepEqual(leftOut({}), []);
});

test("a part without a count is not shown, except packets and connections", () => {
  assert.deepEqual(sensorHealth(sensor({ last_report: 0 }), 1_000), [
    "0 packets",
    "0 dropped by the sensor, 0 by the interface",
    "0 connections evicted, 0 packets of untracked connections",
    "0 stray packets",
  ]);
  const all = sensorHealth(sensor({ hanging: 1, lost: 2, refused: 3, clock_offset_s: 2.345 }), 1_000);
  assert.deepEqual([all[0], ...all.slice(-4)], [
    "1 s ago",
    "1 capture threads hang",
    "2 server seconds lost while disconnected",
    "3 server seconds refused because of impossible times",
    "its clock is 2.3 s ahead",
  ]);
});
