// Samples of the server's JSON.
import type { Board, Profile, Row, Sensor, Server, Span } from "../src/board.ts";

export const COLUMNS = [
  "t", "x", "y", "z", "failed", "opened", "evicted", "answered", "unanswered", "tls_full",
  "tls_resumed", "S_NORMAL", "C_NORMAL", "C_RESET", "S_RESET", "TIMEOUT", "REFUSED", "NO_ANSWER", "OPEN", "BACKSCATTER",
  "response_0", "response_1", "response_2",
];

export function row(t: number, counts: Record<string, number> = {}): Row {
  return COLUMNS.map((name) => (name === "t" ? t : (counts[name] ?? 0)));
}

export const PROFILE: Profile = {
  span_s: 60,
  stopped_span_s: 10,
  aborts: 0.4,
  timeouts: 0.1,
  aborts_and_timeouts: null,
  failures: 0.1,
  unanswered: 0.5,
};

export function span(parts: Partial<Span> = {}): Span {
  return {
    span_s: 60,
    covered_s: 10,
    shares: null,
    opened_per_s: 0,
    answered_per_s: 0,
    unanswered_per_s: 0,
    bytes_per_s: 0,
    response_p50_ms: null,
    response_p99_ms: null,
    unanswered: null,
    tls_full: 0,
    tls_resumed: 0,
    tls_handshake_ms: null,
    ...parts,
  };
}

export function server(parts: Partial<Server> = {}): Server {
  return {
    sensor: "s",
    server: "192.0.2.1:443",
    state: "normal",
    since: 900,
    because: "all is well",
    open: 0,
    shares: null,
    shares_span_s: 60,
    spans: [span(), span(), span()],
    rows: [],
    ...parts,
  };
}

export function sensor(parts: Partial<Sensor> = {}): Sensor {
  return {
    name: "s",
    last_report: 999,
    complete_until: 998,
    covered_s: 10,
    packets: 0,
    dropped: 0,
    dropped_by_interface: 0,
    evicted: 0,
    untracked: 0,
    stray: 0,
    uncounted: 0,
    unwatched: 0,
    hanging: 0,
    away: false,
    clock_offset_s: null,
    lost: 0,
    refused: 0,
    ...parts,
  };
}

export function board(now: number, servers: Server[]): Board {
  return { now, columns: COLUMNS, response_bounds_ms: [1, 10], profile: PROFILE, sensors: [], servers };
}
