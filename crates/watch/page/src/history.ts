// The stored seconds of a server, and its states.
import type { Course, Row, Server, Since } from "./board.ts";

export interface History {
  // By their time, which is their first number.
  readonly rows: readonly Row[];
  // The latest is last.
  readonly timeline: readonly Since[];
}

export const NOTHING: History = { rows: [], timeline: [] };

// The most changes that are stored, as on the server.
const TIMELINE_MAX = 256;

// Merges rows. Those of `newer` replace those of the same second, which change until connections have settled.
export function mergeRows(older: readonly Row[], newer: readonly Row[]): Row[] {
  const merged: Row[] = [];
  let at = 0;
  for (const row of [...newer].sort((a, b) => time(a) - time(b))) {
    while (at < older.length && time(older[at]!) < time(row)) merged.push(older[at++]!);
    if (at < older.length && time(older[at]!) === time(row)) at++;
    merged.push(row);
  }
  return merged.concat(older.slice(at));
}

// Merges a requested course with the rows that came since the request, from the second `asked` on.
export function withCourse(history: History, course: Course, asked: number): History {
  const last = course.timeline.at(-1)?.since ?? -Infinity;
  const later = history.timeline.filter(({ since }) => since > last && since >= asked);
  const rows = history.rows.filter((row) => time(row) >= asked);
  return { rows: mergeRows(course.rows, rows), timeline: [...course.timeline, ...later] };
}

// Adds a tick's rows, and drops those before `from`.
export function withNews(history: History, server: Server, from: number): History {
  const rows = mergeRows(history.rows, server.rows).filter((row) => time(row) >= from);
  return { rows, timeline: withState(history.timeline, server) };
}

function withState(timeline: readonly Since[], { since, state }: Server): readonly Since[] {
  const last = timeline.at(-1);
  if (since === null || (last !== undefined && last.since >= since)) return timeline;
  return [...timeline, { since, state }].slice(-TIMELINE_MAX);
}

export function time(row: Row): number {
  return row[0] ?? 0;
}

// A part of the timeline in one state.
export interface Stretch extends Since {
  until: number;
}

// The states between `from` and `to`. The time before the first known state is left out.
export function stretches(timeline: readonly Since[], from: number, to: number): Stretch[] {
  const ends = timeline.map((entry, at) => ({ ...entry, until: timeline[at + 1]?.since ?? to }));
  const inside = ends.filter(({ since, until }) => until > from && since < to);
  return inside.map(({ state, since, until }) => ({ state, since: Math.max(since, from), until: Math.min(until, to) }));
}
