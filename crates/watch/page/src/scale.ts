// The scale of times in powers of ten: with an outage of seconds, milliseconds stay readable.

// Whole powers of ten around the values, at least two of them.
export function decades(min: number | null, max: number | null): [number, number] {
  if (min === null || max === null || !(min > 0) || !(max > 0)) return [1, 100];
  const from = Math.floor(Math.log10(min) + 1e-9);
  const to = Math.max(Math.ceil(Math.log10(max) - 1e-9), from + 2);
  return [10 ** from, 10 ** to];
}

// The marks: each power, or each second or third one if there are many.
export function powers(min: number, max: number): number[] {
  const [from, to] = [Math.round(Math.log10(min)), Math.round(Math.log10(max))];
  const step = Math.max(1, Math.ceil((to - from) / 4));
  return Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, at) => 10 ** (from + at * step));
}
