import assert from "node:assert/strict";
import { test } from "node:test";
import { AGES, CORNERS, RADIUS, age, boundaries, dots, labels, path, plot } from "../src/ternary.ts";
import type { Point } from "../src/ternary.ts";
import { PROFILE, row } from "./common.ts";

function near([x, y]: Point, [wantedX, wantedY]: Point): void {
  assert.ok(Math.hypot(x - wantedX, y - wantedY) < 1e-9, `${x}, ${y} is not ${wantedX}, ${wantedY}`);
}

test("the corners are where the paper has them", () => {
  const right = RADIUS * Math.cos(Math.PI / 6);
  near(CORNERS.sNormal, [-right, RADIUS / 2]);
  near(CORNERS.clientAbort, [right, RADIUS / 2]);
  near(CORNERS.timeout, [0, -RADIUS]);
  near(plot([1, 1, 1]), [0, 0]);
});

test("only proportions matter", () => {
  near(plot([6, 3, 1]), plot([0.6, 0.3, 0.1]));
  const [x, y] = plot([3, 1, 0]);
  near([x, y], [CORNERS.sNormal[0] / 2, RADIUS / 2]);
});

test("a second in which nothing ended has no point", () => {
  const rows = [row(1, { x: 1 }), row(2, { opened: 5 }), row(3, { z: 2 })];
  const found = dots(rows, 4, 60);
  assert.deepEqual(found.map(({ t }) => t), [1, 3]);
  near(found[1]!.at, CORNERS.timeout);
});

test("points fade by age", () => {
  assert.equal(age(-1, 60), 0);
  assert.equal(age(0, 60), 0);
  assert.equal(age(30, 60), AGES / 2);
  assert.equal(age(60, 60), AGES - 1);
  assert.equal(age(600, 60), AGES - 1);
});

test("boundaries lie at their limits", () => {
  const [aborts, timeouts] = boundaries(PROFILE);
  assert.equal(aborts!.label, "Y > 40 %");
  near(aborts!.line[0], plot([0.6, 0.4, 0]));
  near(aborts!.line[1], plot([0, 0.4, 0.6]));
  assert.equal(timeouts!.label, "Z > 10 %");
  near(timeouts!.line[0], plot([0.9, 0, 0.1]));
  near(timeouts!.line[1], plot([0, 0.9, 0.1]));
  assert.equal(aborts!.area.length, 3);
});

test("the sum of two has a boundary across the left corner", () => {
  const [both, ...others] = boundaries({ ...PROFILE, aborts: 1, timeouts: null, aborts_and_timeouts: 0.255 });
  assert.equal(others.length, 0);
  assert.equal(both!.label, "Y + Z > 25.5 %");
  near(both!.line[0], plot([0.745, 0, 0.255]));
  near(both!.line[1], plot([0.745, 0.255, 0]));
  assert.equal(both!.area.length, 4);
});

test("paths are written as SVG has them", () => {
  assert.equal(path([[0, 1], [2.345, -3]]), "M0.0,1.0L2.3,-3.0");
  assert.equal(path([[0, 1], [2, 3], [4, 5]], true), "M0.0,1.0L2.0,3.0L4.0,5.0Z");
});

// About as wide and high as style.css draws it; `x` is its anchor.
function box(text: string, x: number, y: number, anchor: string, size: number) {
  const width = text.length * size * 0.6;
  const left = anchor === "start" ? x : anchor === "end" ? x - width : x - width / 2;
  return { left, right: left + width, top: y - size * 0.9, bottom: y + size * 0.25 };
}

test("no limit's name covers another or a corner's", () => {
  const shares = [0.005, 0.02, 0.1, 0.25, 0.4, 0.6, 0.9, 0.98, 0.995];
  const { sNormal, clientAbort, timeout } = CORNERS;
  // On a screen, and on a phone.
  for (const [size, small] of [[12.5, 11], [15, 13]] as const)
  for (const aborts of [null, ...shares])
    for (const timeouts of [null, ...shares])
      for (const both of [null, ...shares]) {
        const limits = labels(boundaries({ ...PROFILE, aborts, timeouts, aborts_and_timeouts: both }));
        const corners = [
          box("X delivered", sNormal[0] - 20, sNormal[1] + 20, "start", size),
          box("Y client aborts", clientAbort[0] + 20, clientAbort[1] + 20, "end", size),
          box("Z timeouts", timeout[0], timeout[1] - 12, "middle", size),
        ];
        const boxes = [...corners, ...limits.map(({ label, x, y, anchor }) => box(label, x, y, anchor, small))];
        for (const [at, a] of boxes.entries()) {
          assert.ok(a.left > -262 && a.right < 262 && a.top > -232 && a.bottom < 154, JSON.stringify([aborts, timeouts, both, a]));
          for (const b of boxes.slice(at + 1)) {
            const isApart = a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
            assert.ok(isApart, JSON.stringify([aborts, timeouts, both, a, b]));
          }
        }
      }
});
