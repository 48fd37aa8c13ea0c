// The page: a header, the list of servers, and the selected servers side by side.
import { useEffect, useReducer, useRef } from "preact/hooks";
import type { Board, Course, Sensor } from "./board.ts";
import { keyOf, ofKey } from "./board.ts";
import { count, lastReport, moment } from "./format.ts";
import { NOTHING } from "./history.ts";
import { List } from "./list.tsx";
import type { Link } from "./live.ts";
import { courseUrl, listen } from "./live.ts";
import { Panel } from "./panel.tsx";
import { sensorHealth } from "./sensor.ts";
import type { Action, PageState } from "./state.ts";
import { begin, next, ofHash, toHash } from "./state.ts";

// Connections are reported when they have settled. So the rows of this many latest seconds still change, and come with
// each tick.
const SETTLE_S = 5;

export function App() {
  const [state, dispatch] = useReducer<PageState, Action>(next, begin(ofHash(location.hash)));
  useLive(state, dispatch);
  useHash(state.selected, dispatch);
  const { board, link, selected } = state;
  return (
    <>
      <Header board={board} link={link} />
      <main>
        {board !== null && <Away board={board} />}
        {board === null ? <p class="note">Waiting for data…</p> : <List board={board} selected={selected} dispatch={dispatch} />}
        {board !== null && <Columns state={state} board={board} dispatch={dispatch} />}
      </main>
      {board !== null && <Sensors board={board} />}
    </>
  );
}

// Listens to the stream, and requests the past of selected servers that are watched: at first, and with the first tick
// after the stream was interrupted or slow.
function useLive(state: PageState, dispatch: (action: Action) => void): void {
  const current = useRef(state);
  current.current = state;
  const asked = useRef(new Set<string>());
  const ask = (key: string) => {
    asked.current.add(key);
    void fetchCourse(key, (current.current.board?.now ?? -Infinity) - SETTLE_S, dispatch, () => asked.current.delete(key));
  };
  useEffect(
    () =>
      listen("/api/live", {
        board: (board) => {
          if (board.now - (current.current.board?.now ?? board.now) >= SETTLE_S) asked.current.clear();
          dispatch({ is: "board", board });
        },
        link: (link) => dispatch({ is: "link", link }),
        opened: () => asked.current.clear(),
      }),
    [],
  );
  useEffect(() => {
    for (const key of asked.current) if (!state.selected.includes(key)) asked.current.delete(key);
    const watched = new Set(state.board?.servers.map(keyOf));
    for (const key of state.selected) if (watched.has(key) && !asked.current.has(key)) ask(key);
  }, [state.selected, state.board]);
}

async function fetchCourse(key: string, asked: number, dispatch: (action: Action) => void, failed: () => void): Promise<void> {
  const { sensor, server } = ofKey(key);
  try {
    const answer = await fetch(courseUrl(sensor, server));
    // A server that is no longer watched has no past. When it comes back, its past begins with the ticks.
    if (answer.ok) dispatch({ is: "course", key, course: (await answer.json()) as Course, asked });
  } catch {
    // The server is unreachable. The first tick after that triggers another request.
    failed();
  }
}

function useHash(selected: readonly string[], dispatch: (action: Action) => void): void {
  useEffect(() => {
    const hash = toHash(selected);
    if (hash !== location.hash.slice(1)) history.replaceState(null, "", hash === "" ? location.pathname : `#${hash}`);
  }, [selected]);
  useEffect(() => {
    const changed = () => dispatch({ is: "select", keys: ofHash(location.hash) });
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
}

function Header({ board, link }: { board: Board | null; link: Link }) {
  return (
    <header class="top">
      <h1>
        <span class="mark" aria-hidden="true">△</span> watari watch
      </h1>
      <LinkState board={board} link={link} />
      {board !== null && (
        <time class="clock" dateTime={new Date(board.now * 1000).toISOString()}>
          {moment(board.now, board.now)}
        </time>
      )}
    </header>
  );
}

function LinkState({ board, link }: { board: Board | null; link: Link }) {
  const since = board === null ? "" : ` since ${moment(board.now, board.now)}`;
  const words = { connecting: "connecting…", live: "live", stale: `no data${since}, reconnecting` }[link];
  return (
    <p class={`link ${link}`} role="status">
      <span aria-hidden="true">{link === "live" ? "●" : link === "stale" ? "▲" : "○"}</span> {words}
    </p>
  );
}

function Columns({ state, board, dispatch }: { state: PageState; board: Board; dispatch: (action: Action) => void }) {
  const { selected, histories, link } = state;
  if (board.servers.length === 0 && selected.length === 0) return null;
  if (selected.length === 0) return <p class="note">Select a server to show it, or several to show them side by side.</p>;
  const servers = new Map(board.servers.map((server) => [keyOf(server), server]));
  return (
    <section class="columns" data-count={selected.length} aria-label="Selected servers">
      {selected.map((key) => (
        <Panel
          key={key}
          id={key}
          server={servers.get(key)}
          board={board}
          history={histories.get(key) ?? NOTHING}
          isStale={link === "stale"}
          close={() => dispatch({ is: "toggle", key })}
        />
      ))}
    </section>
  );
}

// A prominent note about disconnected sensors. If there are many, only some are named.
function Away({ board }: { board: Board }) {
  const away = board.sensors.filter((sensor) => sensor.away);
  if (away.length === 0) return null;
  const named = away.slice(0, AWAY_NAMED_MAX);
  const others = away.length - named.length;
  return (
    <div class="away" role="status">
      <p>
        <span aria-hidden="true">▲</span>{" "}
        {away.length === 1 ? "A sensor is disconnected: its" : `${count(away.length)} sensors are disconnected: their`} servers are
        shown as in the last report.
      </p>
      <ul>
        {named.map(({ name, last_report }) => (
          <li key={name}>
            <b>{name}</b>, {lastReport(last_report, board.now)}
          </li>
        ))}
        {others > 0 && <li>and {count(others)} more</li>}
      </ul>
    </div>
  );
}

const AWAY_NAMED_MAX = 5;

function Sensors({ board }: { board: Board }) {
  const of = (what: (sensor: Sensor) => number) => board.sensors.reduce((all, sensor) => all + what(sensor), 0);
  const away = of(({ away }) => Number(away));
  const seconds = of(({ lost, refused }) => lost + refused);
  return (
    <details class="sensors">
      <summary>
        Sensors: {count(board.sensors.length)}
        {away > 0 && `, disconnected: ${count(away)}`}, packets lost: {count(of((it) => it.dropped + it.dropped_by_interface))}
        {seconds > 0 && `, server seconds lost: ${count(seconds)}`}
      </summary>
      <ul>
        {board.sensors.map((sensor) => (
          <SensorItem key={sensor.name} sensor={sensor} now={board.now} />
        ))}
      </ul>
      <p>
        Charts by uPlot and d3-ternary: <a href="/licences.txt">licences</a>
      </p>
    </details>
  );
}

function SensorItem({ sensor, now }: { sensor: Sensor; now: number }) {
  const { name, last_report, away } = sensor;
  return (
    <li>
      <b>{name}</b> {away && <b class="silent">disconnected, </b>}
      {lastReport(last_report, now)} · {sensorHealth(sensor, now).join(" · ")}
    </li>
  );
}
