import assert from "node:assert/strict";
import { test } from "node:test";
import { keyOf, ofKey } from "../src/board.ts";
import { courseUrl } from "../src/live.ts";
import { SELECTED_MAX, begin, next, ofHash, toHash } from "../src/state.ts";
import { board, row, server } from "./common.ts";

const [A, B] = [server({ server: "192.0.2.1:1" }), server({ server: "192.0.2.2:2", state: "stopped", sensor: "a b & c" })];

test("who opens the page sees the worst, once", () => {
  let state = next(begin([]), { is: "board", board: board(1000, []) });
  assert.deepEqual(state.selected, []);
  state = next(state, { is: "board", board: board(1000, [A, B]) });
  assert.deepEqual(state.selected, [keyOf(B)]);
  state = next(state, { is: "select", keys: [] });
  state = next(state, { is: "board", board: board(1001, [A, B]) });
  assert.deepEqual(state.selected, []);
});

test("who comes by an address sees what it names", () => {
  const state = next(begin([keyOf(A)]), { is: "board", board: board(1000, [A, B]) });
  assert.deepEqual(state.selected, [keyOf(A)]);
});

test("only of what is selected the past is kept", () => {
  let state = next(begin([keyOf(A)]), { is: "board", board: board(1000, [{ ...A, rows: [row(999)] }, B]) });
  assert.deepEqual([...state.histories.keys()], [keyOf(A)]);
  state = next(state, { is: "toggle", key: keyOf(A) });
  assert.equal(state.histories.size, 0);
  // A course that comes too late is dropped.
  state = next(state, { is: "course", key: keyOf(A), course: { rows: [row(1)], timeline: [] }, asked: 0 });
  assert.equal(state.histories.size, 0);
});

test("one more, one less, and never too many", () => {
  let state = begin([]);
  for (let at = 0; at < SELECTED_MAX + 3; at++) state = next(state, { is: "toggle", key: `${at} s` });
  assert.equal(state.selected.length, SELECTED_MAX);
  state = next(state, { is: "toggle", key: "0 s" });
  assert.equal(state.selected.includes("0 s"), false);
  assert.deepEqual(next(state, { is: "select", keys: ["x s", "x s"] }).selected, ["x s"]);
});

test("any sensor's name survives an address", () => {
  const keys = [keyOf(A), keyOf(B), keyOf({ server: "[::1]:1", sensor: "ü#&% <b>" })];
  assert.deepEqual(ofHash(`#${toHash(keys)}`), keys);
  assert.deepEqual(ofHash("#%zz"), []);
  assert.deepEqual(ofHash("#nonsense"), []);
  assert.deepEqual(ofHash(""), []);
  assert.deepEqual(ofKey(keyOf(B)), { sensor: "a b & c", server: "192.0.2.2:2" });
  assert.equal(courseUrl("a b & c", "[::1]:1"), "/api/course?sensor=a+b+%26+c&server=%5B%3A%3A1%5D%3A1");
});
