import assert from "node:assert/strict";
import { test } from "node:test";
import { decades, powers } from "../src/scale.ts";

test("an outage leaves milliseconds apart", () => {
  const near = ([from, to]: [number, number], wanted: [number, number]) => {
    for (const [is, should] of [[from, wanted[0]], [to, wanted[1]]] as const) assert.ok(Math.abs(is / should - 1) < 1e-9, `${is} is not ${should}`);
  };
  near(decades(1.5, 30_000), [1, 100_000]);
  near(decades(1, 1), [1, 100]);
  near(decades(0.05, 0.3), [0.01, 1]);
  near(decades(null, null), [1, 100]);
  near(decades(0, 5), [1, 100]);
});

test("a few powers are marked", () => {
  assert.deepEqual(powers(1, 100), [1, 10, 100]);
  assert.equal(powers(0.01, 100_000).length, 4);
  for (let from = -2; from < 3; from++) for (let to = from + 2; to < 6; to++) assert.ok(powers(10 ** from, 10 ** to).length <= 5);
});
