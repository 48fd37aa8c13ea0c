import assert from "node:assert/strict";
import { test } from "node:test";
import { bytesRate, clock, count, duration, lastReport, milliseconds, moment, offset, percent, rate, short, span, zone } from "../src/format.ts";

test("numbers have units, and nothing has none", () => {
  const cases: [string, string][] = [
    [count(12_345), "12,345"],
    [short(0), "0"],
    [short(0.001), "< 0.01"],
    [short(1.234), "1.23"],
    [short(12.34), "12.3"],
    [short(1234.5), "1,235"],
    [rate(5), "5/s"],
    [rate(null), "–"],
    [milliseconds(0.5), "0.5 ms"],
    [milliseconds(undefined), "–"],
    [milliseconds(NaN), "–"],
    [percent(0.777), "77.7 %"],
    [percent(1), "100.0 %"],
    [percent(null), "–"],
    [bytesRate(0), "0 B/s"],
    [bytesRate(1234), "1.23 kB/s"],
    [bytesRate(98_765_432), "98.8 MB/s"],
    [bytesRate(5e13), "50,000 GB/s"],
    [bytesRate(null), "–"],
  ];
  for (const [is, wanted] of cases) assert.equal(is, wanted);
});

test("times are those of the reader's day", () => {
  const noon = new Date(2026, 4, 6, 12, 3, 9).getTime() / 1000;
  assert.equal(clock(noon), "12:03:09");
  assert.equal(moment(noon, noon + 60), `12:03:09 ${zone(noon)}`);
  assert.equal(moment(noon, noon + 86_400), `2026-05-06 12:03:09 ${zone(noon)}`);
});

test("the zone is said as an offset", () => {
  const before = process.env["TZ"];
  for (const [name, wanted] of [["UTC", "UTC"], ["Asia/Tokyo", "UTC+9"], ["Asia/Kolkata", "UTC+5:30"], ["America/St_Johns", "UTC-3:30"], ["Europe/Berlin", "UTC+1"]] as const) {
    process.env["TZ"] = name;
    assert.equal(zone(Date.UTC(2026, 0, 6) / 1000), wanted);
  }
  if (before === undefined) delete process.env["TZ"];
  else process.env["TZ"] = before;
});

test("durations are as coarse as they are long", () => {
  const cases: [number, string][] = [[-3, "0 s"], [59.9, "59 s"], [60, "1 min 0 s"], [3_599, "59 min 59 s"], [3_600, "1 h 0 min"], [90_000, "1 d 1 h"]];
  for (const [seconds, wanted] of cases) assert.equal(duration(seconds), wanted);
  assert.deepEqual([60, 90, 120, 1200].map(span), ["60 s", "90 s", "2 min", "20 min"]);
});

test("clocks are ahead or behind", () => {
  const cases: [number, string][] = [[0.0004, "0.000 s ahead"], [-0.25, "0.250 s behind"], [2.34, "2.3 s ahead"], [-7_300, "2 h 1 min behind"]];
  for (const [seconds, wanted] of cases) assert.equal(offset(seconds), wanted);
});

test("a sensor without a report has no last report in 1970", () => {
  const noon = new Date(2026, 4, 6, 12, 3, 9).getTime() / 1000;
  assert.equal(lastReport(0, noon), "no report yet");
  assert.equal(lastReport(noon, noon + 60), `last report at 12:03:09 ${zone(noon)}`);
});
