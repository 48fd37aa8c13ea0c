// Rows as series of charts: bins of equal width from the first stored second to now.
import type { Row } from "./board.ts";
import { time } from "./history.ts";

// In the order of the stack, the good ones at the bottom.
export const ENDINGS = [
  "S_NORMAL",
  "C_NORMAL",
  "C_RESET",
  "S_RESET",
  "TIMEOUT",
  "REFUSED",
  "NO_ANSWER",
  "OPEN",
  "BACKSCATTER",
] as const;

// A chart has at most about this many bins.
const BINS = 120;
const WIDTHS_S = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600];

export function binWidth(span: number): number {
  return WIDTHS_S.find((width) => span / width <= BINS) ?? Math.ceil(span / BINS);
}

export interface Bins {
  width: number;
  // The begins of bins: whole multiples of the width, so that the content of a bin does not change as time passes.
  starts: number[];
  // The sums of each column in each bin.
  sums: number[][];
}

// The bins of a chart from `from` to `to`. Data after `until` are missing or incomplete: only bins that end before it
// are included.
export function bins(rows: readonly Row[], columns: number, from: number, to: number, until = to): Bins {
  const width = binWidth(to - from);
  const first = Math.ceil(from / width) * width;
  const count = Math.max(0, Math.floor((until - first) / width));
  const starts = Array.from({ length: count }, (_, at) => first + at * width);
  const sums = Array.from({ length: columns }, () => new Array<number>(count).fill(0));
  for (const row of rows) {
    const at = Math.floor((time(row) - first) / width);
    if (at < 0 || at >= count) continue;
    for (let column = 1; column < columns; column++) sums[column]![at]! += row[column] ?? 0;
  }
  return { width, starts, sums };
}

// Some seconds as one bin, for legends and for the facts of the server.
export function lately(rows: readonly Row[], columns: number, until: number, width: number): Bins {
  const sums = Array.from({ length: columns }, () => [0]);
  for (const row of rows.filter((row) => time(row) >= until - width && time(row) < until)) {
    for (let column = 1; column < columns; column++) sums[column]![0]! += row[column] ?? 0;
  }
  return width > 0 ? { width, starts: [until - width], sums } : { width, starts: [], sums: sums.map(() => []) };
}

// Counts of a column, per second.
export function perSecond({ sums, width }: Bins, column: number): number[] {
  return (sums[column] ?? []).map((sum) => sum / width);
}

// A quantile of the times in each bin, from counts by bucket; null for an empty bin. As `Histogram::quantile` computes
// it.
export function quantiles(buckets: readonly (readonly number[])[], bounds: readonly number[], share: number): (number | null)[] {
  return (buckets[0] ?? []).map((_, bin) => {
    const counts = buckets.map((ofBins) => ofBins[bin]!);
    const rank = share * counts.reduce((all, count) => all + count, 0);
    let [below, from] = [0, 0];
    for (const [at, bound] of bounds.entries()) {
      const count = counts[at]!;
      if (count > 0 && below + count >= rank) return from + ((bound - from) * (rank - below)) / count;
      [below, from] = [below + count, bound];
    }
    return rank > 0 ? from : null;
  });
}

// Adds to each series those below it. The visible part of an area is its own values.
export function stack(series: readonly (readonly number[])[]): number[][] {
  let below: number[] = [];
  return series.map((values) => (below = values.map((value, at) => value + (below[at] ?? 0))));
}

// Connections that were open at the end of each second: those open now, minus those that began since, plus those that
// ended since.
export function openAtEnds(rows: readonly Row[], columns: readonly string[], openNow: number): Map<number, number> {
  const opened = columns.indexOf("opened");
  const closing = [...ENDINGS, "evicted"].map((name) => columns.indexOf(name));
  const open = new Map<number, number>();
  let count = openNow;
  for (const row of [...rows].reverse()) {
    open.set(time(row), Math.max(0, count));
    const closed = closing.reduce((all, column) => all + (row[column] ?? 0), 0);
    count += closed - (row[opened] ?? 0);
  }
  return open;
}

// The last known value in each bin, which stays until it changes. There is none before the first row.
export function openSeries(open: ReadonlyMap<number, number>, { starts, width }: Bins): (number | null)[] {
  const known = [...open].sort(([a], [b]) => a - b);
  let at = 0;
  let last: number | null = null;
  return starts.map((start) => {
    while (at < known.length && known[at]![0] < start + width) last = known[at++]![1];
    return last;
  });
}
