// The JSON of the server: `BoardView` and `CourseView` of board.rs. Times are seconds since the Unix epoch, shares 0 to
// 1.

export const STATES = ["idle", "normal", "saturated", "stopped"] as const;
export type State = (typeof STATES)[number];

// The numbers of a second, in the order of `Board.columns`.
export type Row = readonly number[];

export interface Board {
  now: number;
  columns: string[];
  // Upper bounds of the buckets of response times. The last bucket has none.
  response_bounds_ms: number[];
  profile: Profile;
  sensors: Sensor[];
  servers: Server[];
}

// The limits between the states of servers; null is no limit.
export interface Profile {
  span_s: number;
  stopped_span_s: number;
  aborts: number | null;
  timeouts: number | null;
  aborts_and_timeouts: number | null;
  failures: number | null;
  unanswered: number;
}

export interface Sensor {
  name: string;
  last_report: number;
  // The end of the last complete second, by its own clock, and the number of seconds before that are covered, at most
  // ten.
  complete_until: number;
  covered_s: number;
  packets: number;
  dropped: number;
  dropped_by_interface: number;
  evicted: number;
  untracked: number;
  stray: number;
  // Seconds of servers that were not reported, because there were too many.
  uncounted: number;
  // Number of events at servers that are not watched, because there are too many.
  unwatched: number;
  // Threads that are behind the others, for which the board does not wait.
  hanging: number;
  // Whether it is another machine, and not connected.
  away: boolean;
  // How far its clock is ahead of the server's.
  clock_offset_s: number | null;
  // Seconds of servers that it dropped before the judge got them.
  lost: number;
  // Seconds of servers that were refused, because their time is impossible.
  refused: number;
}

export interface Server {
  sensor: string;
  server: string;
  state: State;
  since: number | null;
  because: string | null;
  // At the end of the last complete second.
  open: number;
  // Over the span of the current state, and its length in seconds: for a stopped server, since it stopped.
  shares: Shares | null;
  shares_span_s: number;
  // The span of the profile, that of stopped servers, and ten complete seconds.
  spans: Span[];
  rows: Row[];
}

export interface Shares {
  s_normal: number;
  client_abort: number;
  timeout: number;
}

// Rates and times are those of its complete seconds, `covered_s`; null if there are none.
export interface Span {
  span_s: number;
  covered_s: number;
  shares: Shares | null;
  opened_per_s: number | null;
  answered_per_s: number | null;
  unanswered_per_s: number | null;
  bytes_per_s: number | null;
  response_p50_ms: number | null;
  response_p99_ms: number | null;
  unanswered: number | null;
  tls_full: number;
  tls_resumed: number;
  tls_handshake_ms: number | null;
}

export interface Course {
  rows: Row[];
  timeline: Since[];
}

// The state of a server from `since` on.
export interface Since {
  since: number;
  state: State;
}

// A server at a sensor. Several sensors may see the same server.
export function keyOf(server: Pick<Server, "sensor" | "server">): string {
  return `${server.server} ${server.sensor}`;
}

// An address has no space; a sensor's name may have some.
export function ofKey(key: string): { sensor: string; server: string } {
  const at = key.indexOf(" ");
  return { server: key.slice(0, at), sensor: key.slice(at + 1) };
}

// The last ten seconds.
export function recent(server: Server): Span | undefined {
  return server.spans.at(-1);
}

// The span over which the server is judged.
export function judged(server: Server): Span | undefined {
  return server.spans[0];
}

// The share of resumed sessions in the connections that ended with TLS.
export function resumedShare(span: Span | undefined): number | null {
  if (span === undefined) return null;
  const all = span.tls_full + span.tls_resumed;
  return all > 0 ? span.tls_resumed / all : null;
}

// The names of X, Y and Z on the page.
export const SHARES = [
  { letter: "X", name: "delivered", short: "X delivered", says: "X: delivered, share of ended connections", value: (shares: Shares) => shares.s_normal },
  { letter: "Y", name: "client aborts", short: "Y aborts", says: "Y: cut off by clients, share of ended connections", value: (shares: Shares) => shares.client_abort },
  { letter: "Z", name: "timeouts", short: "Z timeouts", says: "Z: timed out, share of ended connections", value: (shares: Shares) => shares.timeout },
] as const;

// The time that charts cover, in seconds.
export function heldSpan(profile: Profile): number {
  return Math.max(profile.span_s, profile.stopped_span_s, 10);
}

// Sensors report each second. Without a report for this many seconds, the states of their servers are unknown.
export const SILENT_S = 10;

// Since when the states of a sensor's servers are unknown: the page shows them as they were then. Null: they are known.
export function silentSince(sensor: Sensor | undefined, now: number): number | null {
  if (sensor === undefined) return 0;
  const ago = now - (sensor.last_report - (sensor.clock_offset_s ?? 0));
  return sensor.away || ago >= SILENT_S ? sensor.last_report : null;
}
