// One server: its state and evidence, its diagram, and its past.
import type { Board, Sensor, Server } from "./board.ts";
import { heldSpan, judged, ofKey, recent, resumedShare, silentSince } from "./board.ts";
import { Charts } from "./charts.tsx";
import { Cloud } from "./cloud.tsx";
import { bytesRate, count, duration, milliseconds, moment, percent, rate } from "./format.ts";
import type { History } from "./history.ts";
import { Sign } from "./sign.tsx";
import { Timeline } from "./timeline.tsx";

interface Props {
  id: string;
  server: Server | undefined;
  board: Board;
  history: History;
  isStale: boolean;
  close: () => void;
}

export function Panel({ id, server, board, history, isStale, close }: Props) {
  const { sensor, server: address } = ofKey(id);
  const who = board.sensors.find(({ name }) => name === sensor);
  const isOld = isStale || silentSince(who, board.now) !== null;
  return (
    <article class={isOld ? "panel old" : "panel"} data-key={id} aria-label={`${address} of ${sensor}`}>
      <header>
        <h2>
          {address} <small>{sensor}</small>
        </h2>
        <button type="button" class="close" onClick={close} aria-label={`Close ${address} of ${sensor}`}>
          ×
        </button>
      </header>
      {server === undefined ? (
        <p class="note">No sensor has seen a connection to it for a while: it is not watched now. It returns with its next connection.</p>
      ) : (
        <Content {...{ server, board, history }} sensor={who} />
      )}
    </article>
  );
}

interface ContentProps {
  server: Server;
  board: Board;
  history: History;
  sensor: Sensor | undefined;
}

function Content({ server, board, history, sensor }: ContentProps) {
  const span = heldSpan(board.profile);
  const to = board.now;
  const silent = silentSince(sensor, to);
  const time = { from: to - span, until: silent ?? to, to };
  // Charts end with the last complete second: all bins cover whole seconds of the sensor's clock.
  const until = sensor?.complete_until ?? to;
  const end = silent === null ? until : Math.max(to, until);
  return (
    <>
      <div class="present">
        <div class="verdict">
          <Verdict server={server} sensor={sensor} now={board.now} />
          <Facts server={server} />
        </div>
        <Cloud rows={history.rows} shares={server.shares} spanS={server.shares_span_s} profile={board.profile} now={board.now} />
      </div>
      <Timeline timeline={history.timeline} {...time} />
      <Charts
        rows={history.rows}
        columns={board.columns}
        boundsMs={board.response_bounds_ms}
        server={server}
        from={end - span}
        until={until}
        to={end}
      />
    </>
  );
}

function Verdict({ server, sensor, now }: { server: Server; sensor: Sensor | undefined; now: number }) {
  const { state, since, because } = server;
  const silent = silentSince(sensor, now);
  // The state after the last report is unknown, and so is its duration.
  const until = silent ?? now;
  return (
    <p class="because">
      <Sign state={state} isPast={silent !== null} />{" "}
      {since === null ? (
        "so far: too little has happened to decide."
      ) : (
        <>
          since {moment(since, now)} ({duration(until - since)}): {because}.
        </>
      )}
      {silent !== null && (
        <b class="silent">
          {" "}State at {moment(silent, now)}: its sensor {sensor?.away === true ? "is disconnected" : "is silent"}, and later
          events are unknown.
        </b>
      )}
    </p>
  );
}

function Facts({ server }: { server: Server }) {
  const [long, short] = [judged(server), recent(server)];
  const last = `last ${short?.covered_s ?? 0} s`;
  const facts: [string, string, string][] = [
    ["Open", count(server.open), "open connections, at the end of the last complete second"],
    ["New", rate(short?.opened_per_s), `connections opened per second, ${last}`],
    ["Requests", rate(short?.answered_per_s), `answered requests per second, ${last}`],
    ["p50", milliseconds(short?.response_p50_ms), `median of the time to the first octet of an answer, ${last}`],
    ["p99", milliseconds(short?.response_p99_ms), `99th percentile of the time to the first octet of an answer, ${last}`],
    ["Unanswered", percent(short?.unanswered), `share of attempts and requests, ${last}`],
    ["To clients", bytesRate(short?.bytes_per_s), `of connections that ended in the ${last}`],
    ["TLS resumed", percent(resumedShare(long)), "of the sessions in the judged span"],
    ["TLS handshake", milliseconds(long?.tls_handshake_ms), "mean, in the judged span"],
  ];
  return (
    <dl class="facts">
      {facts.map(([name, value, says]) => (
        <div key={name} title={says}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

