// One server: what it is in and why, its cloud, its past.
import type { Board, Sensor, Server } from "./board.ts";
import { heldSpan, judged, ofKey, recent, resumedShare, unheardSince } from "./board.ts";
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
  const isOld = isStale || unheardSince(who, board.now) !== null;
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
        <p class="note">Nothing has been seen of it for a while: it is not watched now. It comes back with its first connection.</p>
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
  const unheard = unheardSince(sensor, to);
  const time = { from: to - span, until: unheard ?? to, to };
  // Charts end with the last complete second: all bins cover whole seconds of the sensor's clock.
  const until = sensor?.complete_until ?? to;
  const end = unheard === null ? until : Math.max(to, until);
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
  const unheard = unheardSince(sensor, now);
  // Of what has been since nothing is known, not even that it lasts.
  const until = unheard ?? now;
  return (
    <p class="because">
      <Sign state={state} isPast={unheard !== null} />{" "}
      {since === null ? (
        "so far: too little has happened to say more."
      ) : (
        <>
          since {moment(since, now)} ({duration(until - since)}): {because}.
        </>
      )}
      {unheard !== null && (
        <b class="unheard">
          {" "}That was at {moment(unheard, now)}: its sensor {sensor?.away === true ? "is away" : "says nothing"}, and what has happened
          since is not known.
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
    ["p50", milliseconds(short?.response_p50_ms), `median time to the first octet of answers, ${last}`],
    ["p99", milliseconds(short?.response_p99_ms), `time to the first octet that 99 % of answers took at most, ${last}`],
    ["Unanswered", percent(short?.unanswered), `of what asked, ${last}`],
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

