// The ternary diagram: S_NORMAL at the left corner, client aborts at the right, TIMEOUT at the top (ANMA paper, chapter
// 2).
import { barycentric, ternaryPlot } from "d3-ternary";
import type { Profile, Row, Shares } from "./board.ts";
import { time } from "./history.ts";

export const RADIUS = 200;

export type Point = readonly [x: number, y: number];

// X, Y and Z. Only the proportions matter.
export type Weights = readonly [sNormal: number, clientAbort: number, timeout: number];

// d3-ternary's a is at the top, b at the left, c at the right.
const axes = barycentric<Weights>()
  .a(([, , timeout]) => timeout)
  .b(([sNormal]) => sNormal)
  .c(([, clientAbort]) => clientAbort);
export const plot = ternaryPlot(axes).radius(RADIUS);

export const CORNERS = { sNormal: plot([1, 0, 0]), clientAbort: plot([0, 1, 0]), timeout: plot([0, 0, 1]) } as const;

export function ofShares(shares: Shares): Weights {
  return [shares.s_normal, shares.client_abort, shares.timeout];
}

export interface Dot {
  t: number;
  at: Point;
  // 0 is new; AGES - 1 is the oldest.
  age: number;
}

export const AGES = 8;

// A dot for each second in which connections ended, the oldest first.
export function dots(rows: readonly Row[], now: number, span: number): Dot[] {
  const ended = rows.filter((row) => weights(row).some((count) => count > 0));
  return ended.map((row) => ({ t: time(row), at: plot(weights(row)), age: age(now - time(row), span) }));
}

// The order in `columns` is t, x, y, z.
function weights(row: Row): Weights {
  return [row[1] ?? 0, row[2] ?? 0, row[3] ?? 0];
}

export function age(seconds: number, span: number): number {
  return Math.min(AGES - 1, Math.max(0, Math.floor((seconds / span) * AGES)));
}

// A limit: beyond its line a server counts as saturated.
export interface Boundary {
  label: string;
  line: readonly [Point, Point];
  // The area beyond the line.
  area: readonly Point[];
}

// The limits of a profile. A limit of null, 0 or 1 is none.
export function boundaries(profile: Profile): Boundary[] {
  const found: Boundary[] = [];
  const add = (limit: number | null, what: string, corners: (limit: number) => Weights[]) => {
    if (limit === null || limit <= 0 || limit >= 1) return;
    const area: Point[] = corners(limit).map((weights) => plot(weights));
    found.push({ label: `${what} > ${Math.round(limit * 1000) / 10} %`, line: [area[0]!, area[1]!], area });
  };
  add(profile.aborts, "Y", (y) => [[1 - y, y, 0], [0, y, 1 - y], [0, 1, 0]]);
  add(profile.timeouts, "Z", (z) => [[1 - z, 0, z], [0, 1 - z, z], [0, 0, 1]]);
  add(profile.aborts_and_timeouts, "Y + Z", (s) => [[1 - s, 0, s], [1 - s, s, 0], [0, 1, 0], [0, 0, 1]]);
  return found;
}

// The name of a limit, outside of the triangle.
export interface Label {
  label: string;
  x: number;
  y: number;
  anchor: "start" | "middle";
}

// The names of the corners are below the triangle. Limits that end there have a row below those.
const BELOW = RADIUS / 2 + 42;
// Beside the right edge: above the right corner's name, below that of the top.
const BESIDE_MAX = RADIUS / 2 - 6;
const BESIDE_MIN = -RADIUS + 4;
const LINE_HEIGHT = 17;

// Labels at the ends of their lines: beside the right edge without overlaps, or below the base.
export function labels(limits: readonly Boundary[]): Label[] {
  const ends = limits.map(({ label, line: [, [x, y]] }) => ({ label, x, y }));
  const isBelow = ({ y }: { y: number }) => Math.abs(y - RADIUS / 2) < 1e-6;
  const below = ends.filter(isBelow).map(({ label, x }): Label => ({ label, x, y: BELOW, anchor: "middle" }));
  const beside = ends.filter((end) => !isBelow(end)).sort((a, b) => b.y - a.y);
  // First from below: each is above the one before. Then from above: each is below the one before.
  const heights = beside.map(({ y }) => y + 4);
  for (let at = 0, free = BESIDE_MAX; at < heights.length; at++) free = (heights[at] = Math.min(heights[at]!, free)) - LINE_HEIGHT;
  for (let at = heights.length - 1, free = BESIDE_MIN; at >= 0; at--) free = (heights[at] = Math.max(heights[at]!, free)) + LINE_HEIGHT;
  return [...below, ...beside.map(({ label, x }, at): Label => ({ label, x: x + 10, y: heights[at]!, anchor: "start" }))];
}

export function path(points: readonly Point[], isClosed = false): string {
  return `M${points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join("L")}${isClosed ? "Z" : ""}`;
}
