import assert from "node:assert/strict";
import { test } from "node:test";
import { NOTHING, mergeRows, stretches, withCourse, withNews } from "../src/history.ts";
import { row, server } from "./common.ts";

const at = (...times: number[]) => times.map((time) => row(time));
const xs = (rows: readonly (readonly number[])[]) => rows.map(([t, x]) => [t, x]);

test("newer rows replace those of the same second", () => {
  const merged = mergeRows([row(1, { x: 1 }), row(2, { x: 1 }), row(4, { x: 1 })], [row(3, { x: 2 }), row(2, { x: 2 })]);
  assert.deepEqual(xs(merged), [[1, 1], [2, 2], [3, 2], [4, 1]]);
});

test("merging with nothing changes nothing", () => {
  assert.deepEqual(mergeRows([], at(1, 2)), at(1, 2));
  assert.deepEqual(mergeRows(at(1, 2), []), at(1, 2));
});

test("any split of rows merges to the same", () => {
  const all = at(...Array.from({ length: 12 }, (_, time) => time));
  for (let mask = 0; mask < 1 << 12; mask += 7) {
    const [some, others] = [all.filter((_, at) => mask & (1 << at)), all.filter((_, at) => !(mask & (1 << at)))];
    assert.deepEqual(mergeRows(some, others), all);
  }
});

test("what is too old goes", () => {
  const history = { rows: at(1, 5, 9), timeline: [] };
  assert.deepEqual(withNews(history, server({ rows: at(10) }), 5).rows, at(5, 9, 10));
});

test("a change of state is noted once", () => {
  let history = withNews(NOTHING, server({ state: "normal", since: 10 }), 0);
  history = withNews(history, server({ state: "normal", since: 10 }), 0);
  history = withNews(history, server({ state: "stopped", since: 20 }), 0);
  assert.deepEqual(history.timeline, [{ since: 10, state: "normal" }, { since: 20, state: "stopped" }]);
  assert.deepEqual(withNews(NOTHING, server({ since: null }), 0).timeline, []);
});

test("a course takes the place of what was known but for what came since it was asked for", () => {
  const known = { rows: [row(1, { x: 9 }), row(7, { x: 9 }), row(8, { x: 9 })], timeline: [{ since: 8, state: "stopped" as const }] };
  const course = { rows: [row(1, { x: 1 }), row(3, { x: 1 }), row(7, { x: 1 })], timeline: [{ since: 1, state: "normal" as const }] };
  const history = withCourse(known, course, 7);
  assert.deepEqual(xs(history.rows), [[1, 1], [3, 1], [7, 9], [8, 9]]);
  assert.deepEqual(history.timeline.map(({ since }) => since), [1, 8]);
  // A server that restarted has no earlier past.
  assert.deepEqual(withCourse(known, { rows: [], timeline: [] }, 100), NOTHING);
});

test("stretches end where the next begins, and are cut to what is shown", () => {
  const timeline = [{ since: 0, state: "normal" as const }, { since: 50, state: "saturated" as const }, { since: 90, state: "stopped" as const }];
  assert.deepEqual(stretches(timeline, 40, 100), [
    { state: "normal", since: 40, until: 50 },
    { state: "saturated", since: 50, until: 90 },
    { state: "stopped", since: 90, until: 100 },
  ]);
  assert.deepEqual(stretches(timeline, 60, 80), [{ state: "saturated", since: 60, until: 80 }]);
  assert.deepEqual(stretches([], 0, 100), []);
  // All known states are older than the shown time.
  assert.deepEqual(stretches(timeline, 120, 100), []);
});
