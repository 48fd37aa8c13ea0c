import assert from "node:assert/strict";
import { test } from "node:test";
import { ENDINGS, bins, binWidth, lately, openAtEnds, openSeries, perSecond, quantiles, stack } from "../src/series.ts";
import { COLUMNS, row } from "./common.ts";

const X = COLUMNS.indexOf("x");

test("a chart has no more bins than it can show", () => {
  assert.equal(binWidth(60), 1);
  assert.equal(binWidth(120), 1);
  assert.equal(binWidth(121), 2);
  assert.equal(binWidth(1200), 10);
  assert.equal(binWidth(86_400), 1800);
  assert.equal(binWidth(10_000_000), 83_334);
});

test("bins begin at multiples of their width, and what is outside is left out", () => {
  const rows = [row(994, { x: 100 }), row(1000, { x: 1 }), row(1009, { x: 2 }), row(1010, { x: 4 }), row(9999, { x: 100 })];
  const binned = bins(rows, COLUMNS.length, 995, 2195);
  assert.equal(binned.width, 10);
  assert.deepEqual([binned.starts[0], binned.starts.at(-1), binned.starts.length], [1000, 2180, 119]);
  assert.deepEqual(binned.sums[X]!.slice(0, 3), [3, 4, 0]);
  assert.deepEqual(perSecond(binned, X).slice(0, 2), [0.3, 0.4]);
  // A second later they are the same.
  assert.deepEqual(bins(rows, COLUMNS.length, 996, 2196).starts, binned.starts);
});

test("no rows are bins of nothing", () => {
  const { starts, sums } = bins([], COLUMNS.length, 0, 60);
  assert.equal(starts.length, 60);
  assert.ok(sums[X]!.every((count) => count === 0));
  assert.deepEqual(bins([], COLUMNS.length, 60, 0).starts, []);
  // A series without data has no bins, and leaves the others unchanged.
  assert.deepEqual(bins([], COLUMNS.length, 0, 1_200, 35).starts, [0, 10, 20]);
  assert.deepEqual(bins([], COLUMNS.length, 60, 120, 50).starts, []);
});

test("each of a stack stands on those below", () => {
  assert.deepEqual(stack([[1, 2], [10, 20], [100, 200]]), [[1, 2], [11, 22], [111, 222]]);
  assert.deepEqual(stack([]), []);
});

test("quantiles are evenly spread in a bucket, and of the last its beginning", () => {
  const buckets = [[0, 10, 0, 1], [10, 0, 0, 0], [0, 0, 2, 1]];
  assert.deepEqual(quantiles(buckets, [1, 11], 0.5), [6, 0.5, 11, 1]);
  assert.deepEqual(quantiles(buckets, [1, 11], 1), [11, 1, 11, 11]);
  assert.deepEqual(quantiles([[0], [0], [0]], [1, 11], 0.5), [null]);
  assert.deepEqual(quantiles([], [], 0.5), []);
});

test("all endings are columns", () => {
  assert.deepEqual(ENDINGS.filter((name) => !COLUMNS.includes(name)), []);
});

test("what was open follows from what is open", () => {
  const rows = [row(1, { opened: 5 }), row(2, { opened: 1, S_NORMAL: 2, evicted: 1 }), row(5, { REFUSED: 1 })];
  const open = openAtEnds(rows, COLUMNS, 2);
  assert.deepEqual([...open].sort(), [[1, 5], [2, 3], [5, 2]]);
  const series = openSeries(open, bins(rows, COLUMNS.length, 0, 6));
  assert.deepEqual(series, [null, 5, 3, 3, 3, 2]);
});

test("nothing is open less than not at all", () => {
  const open = openAtEnds([row(1, { opened: 1 }), row(2, { opened: 9 })], COLUMNS, 2);
  assert.equal(open.get(1), 0);
});

test("a legend covers the same complete seconds as the server", () => {
  const rows = [row(989, { x: 100 }), row(990, { x: 1, response_1: 9 }), row(999, { x: 2, response_1: 1 }), row(1000, { x: 100 })];
  const last = lately(rows, COLUMNS.length, 1000, 10);
  assert.deepEqual(perSecond(last, X), [0.3]);
  const first = COLUMNS.indexOf("response_0");
  assert.deepEqual(quantiles(last.sums.slice(first, first + 3), [1, 11], 0.5), [6]);
  assert.deepEqual(perSecond(lately(rows, COLUMNS.length, 1000, 0), X), []);
});

test("a bin that is not over is not shown", () => {
  const rows = Array.from({ length: 60 }, (_, at) => row(940 + at, { x: 7 }));
  for (const until of [995, 999, 1000]) {
    const binned = bins(rows, COLUMNS.length, 940, 1000, until);
    assert.ok(perSecond(binned, X).every((rate) => rate === 7));
    assert.equal(binned.starts.at(-1)! + binned.width, until);
  }
});
