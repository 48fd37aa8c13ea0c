// The page: a header, the list of servers, and those that are selected beside each other.
import { useEffect, useReducer, useRef } from "preact/hooks";
import type { Board, Course, Sensor } from "./board.ts";
import { keyOf, ofKey } from "./board.ts";
import { count, duration, heardAt, moment, offset } from "./format.ts";
import { NOTHING } from "./history.ts";
import { List } from "./list.tsx";
import type { Link } from "./live.ts";
import { courseUrl, listen } from "./live.ts";
import { Panel } from "./panel.tsx";
import type { Action, PageState } from "./state.ts";
import { begin, next, ofHash, toHash } from "./state.ts";

// Connections are told when they have settled: rows of so many of the latest seconds still change, and come with all news.
const SETTLE_S = 5;

export function App() {
  const [state, tell] = useReducer<PageState, Action>(next, begin(ofHash(location.hash)));
  useLive(state, tell);
  useHash(state.selected, tell);
  const { board, link, selected } = state;
  return (
    <>
      <Header board={board} link={link} />
      <main>
        {board !== null && <Away board={board} />}
        {board === null ? <p class="note">Waiting for the first news…</p> : <List board={board} selected={selected} tell={tell} />}
        {board !== null && <Columns state={state} board={board} tell={tell} />}
      </main>
      {board !== null && <Sensors board={board} />}
    </>
  );
}

// Listens, and asks for the past of what is selected, if it is watched: at first, and with the first news after the stream was
// away or slow.
function useLive(state: PageState, tell: (action: Action) => void): void {
  const current = useRef(state);
  current.current = state;
  const asked = useRef(new Set<string>());
  const ask = (key: string) => {
    asked.current.add(key);
    void fetchCourse(key, (current.current.board?.now ?? -Infinity) - SETTLE_S, tell, () => asked.current.delete(key));
  };
  useEffect(
    () =>
      listen("/api/live", {
        board: (board) => {
          if (board.now - (current.current.board?.now ?? board.now) >= SETTLE_S) asked.current.clear();
          tell({ is: "board", board });
        },
        link: (link) => tell({ is: "link", link }),
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

async function fetchCourse(key: string, asked: number, tell: (action: Action) => void, failed: () => void): Promise<void> {
  const { sensor, server } = ofKey(key);
  try {
    const answer = await fetch(courseUrl(sensor, server));
    // What is not watched any more has no past, and when it comes back, that begins with what ticks say.
    if (answer.ok) tell({ is: "course", key, course: (await answer.json()) as Course, asked });
  } catch {
    // The server is away; the tick after it is back asks again.
    failed();
  }
}

function useHash(selected: readonly string[], tell: (action: Action) => void): void {
  useEffect(() => {
    const hash = toHash(selected);
    if (hash !== location.hash.slice(1)) history.replaceState(null, "", hash === "" ? location.pathname : `#${hash}`);
  }, [selected]);
  useEffect(() => {
    const changed = () => tell({ is: "select", keys: ofHash(location.hash) });
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
  const words = { connecting: "connecting…", live: "live", stale: `no news${since}, trying again` }[link];
  return (
    <p class={`link ${link}`} role="status">
      <span aria-hidden="true">{link === "live" ? "●" : link === "stale" ? "▲" : "○"}</span> {words}
    </p>
  );
}

function Columns({ state, board, tell }: { state: PageState; board: Board; tell: (action: Action) => void }) {
  const { selected, histories, link } = state;
  if (board.servers.length === 0 && selected.length === 0) return null;
  if (selected.length === 0) return <p class="note">Choose a server to see it; choose several to see them beside each other.</p>;
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
          close={() => tell({ is: "toggle", key })}
        />
      ))}
    </section>
  );
}

// Sensors that are away, said where nobody overlooks it; not all of them by name, if there are many.
function Away({ board }: { board: Board }) {
  const away = board.sensors.filter((sensor) => sensor.away);
  if (away.length === 0) return null;
  const named = away.slice(0, AWAY_NAMED_MAX);
  const others = away.length - named.length;
  return (
    <div class="away" role="status">
      <p>
        <span aria-hidden="true">▲</span>{" "}
        {away.length === 1 ? "A sensor is away: its" : `${count(away.length)} sensors are away: their`} servers are shown as they
        were then.
      </p>
      <ul>
        {named.map(({ name, heard }) => (
          <li key={name}>
            <b>{name}</b>, {heardAt(heard, board.now)}
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
        {away > 0 && `, away: ${count(away)}`}, packets lost: {count(of((it) => it.dropped + it.dropped_by_interface))}
        {seconds > 0 && `, seconds of servers lost: ${count(seconds)}`}
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
  const { name, heard, away, clock_offset_s: ahead, lost, refused } = sensor;
  const parts = [
    ...(heard > 0 ? [`${duration(now - heard)} ago`] : []),
    `${count(sensor.packets)} packets`,
    `lost ${count(sensor.dropped)} here, ${count(sensor.dropped_by_interface)} at the interface`,
    `${count(sensor.evicted)} connections given up, ${count(sensor.untracked)} packets not followed`,
    `${count(sensor.stray)} stray packets`,
    ...(sensor.hanging > 0 ? [`${count(sensor.hanging)} threads hang`] : []),
    ...(sensor.unwatched + sensor.untold > 0 ? [`too many servers: ${count(sensor.unwatched + sensor.untold)} times one was left out`] : []),
    ...(lost > 0 ? [`${count(lost)} seconds of servers lost while it was away`] : []),
    ...(refused > 0 ? [`${count(refused)} seconds of servers refused, because they are of no time that can be`] : []),
    ...(ahead === null ? [] : [`its clock is ${offset(ahead)}`]),
  ];
  return (
    <li>
      <b>{name}</b> {away && <b class="unheard">away, </b>}
      {heardAt(heard, now)} · {parts.join(" · ")}
    </li>
  );
}
