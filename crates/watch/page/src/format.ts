// Numbers with units, and times, as text.

const NONE = "–";

export function count(value: number): string {
  return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
}

// At most three significant digits.
export function short(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  if (value !== 0 && Math.abs(value) < 0.01) return "< 0.01";
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toLocaleString("en-US", { maximumFractionDigits: digits });
}

export function rate(value: number | null | undefined): string {
  return withUnit(short(value), "/s");
}

export function milliseconds(value: number | null | undefined): string {
  return withUnit(short(value), " ms");
}

export function percent(share: number | null | undefined): string {
  if (share === null || share === undefined || !Number.isFinite(share)) return NONE;
  return `${(share * 100).toFixed(1)} %`;
}

export function bytesRate(perSecond: number | null | undefined): string {
  if (perSecond === null || perSecond === undefined || !Number.isFinite(perSecond)) return NONE;
  const units = ["B/s", "kB/s", "MB/s", "GB/s"];
  let [value, at] = [perSecond, 0];
  while (value >= 1000 && at < units.length - 1) [value, at] = [value / 1000, at + 1];
  return `${short(value)} ${units[at]}`;
}

function withUnit(text: string, unit: string): string {
  return text === NONE ? text : text + unit;
}

// The time of day in the reader's time zone.
export function clock(seconds: number): string {
  const at = new Date(seconds * 1000);
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

// The reader's zone at that time, as an offset from UTC: UTC, UTC+9, UTC-3:30.
export function zone(seconds: number): string {
  const minutes = -new Date(seconds * 1000).getTimezoneOffset();
  if (minutes === 0) return "UTC";
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return `UTC${minutes < 0 ? "-" : "+"}${hours}${rest === 0 ? "" : `:${String(rest).padStart(2, "0")}`}`;
}

// A time with its zone. The date is included unless it is today.
export function moment(seconds: number, now: number): string {
  const [at, today] = [new Date(seconds * 1000), new Date(now * 1000)];
  const time = `${clock(seconds)} ${zone(seconds)}`;
  if (at.toDateString() === today.toDateString()) return time;
  const day = [at.getFullYear(), at.getMonth() + 1, at.getDate()].map((part) => String(part).padStart(2, "0")).join("-");
  return `${day} ${time}`;
}

// The time of a sensor's last report.
export function lastReport(seconds: number, now: number): string {
  return seconds > 0 ? `last report at ${moment(seconds, now)}` : "no report yet";
}

// How far a clock is ahead of another.
export function offset(seconds: number): string {
  const size = Math.abs(seconds);
  const text = size < 60 ? `${size.toFixed(size < 1 ? 3 : 1)} s` : duration(size);
  return `${text} ${seconds < 0 ? "behind" : "ahead"}`;
}

export function duration(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${whole % 60} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 24 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

// A span of the profile.
export function span(seconds: number): string {
  return seconds >= 120 && seconds % 60 === 0 ? `${seconds / 60} min` : `${seconds} s`;
}
