// The list of servers: sorted, filtered, and selected by mouse, finger and keyboard.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Board, Sensor, Server } from "./board.ts";
import { SHARES, judged, keyOf, recent, resumedShare, silentSince } from "./board.ts";
import { count, lastReport, milliseconds, moment, percent, rate } from "./format.ts";
import type { Order } from "./listing.ts";
import { COLUMNS, WORST_FIRST, listed, nextOrder } from "./listing.ts";
import { Sign } from "./sign.tsx";
import type { Action } from "./state.ts";

interface Props {
  board: Board;
  selected: readonly string[];
  dispatch: (action: Action) => void;
}

export function List({ board, selected, dispatch }: Props) {
  const [order, setOrder] = useState(WORST_FIRST);
  const [filter, setFilter] = useState("");
  const servers = listed(board.servers, order, filter);
  const rows = useRows(servers.map(keyOf), selected, dispatch);
  if (board.servers.length === 0) return <Nobody board={board} />;
  const sensors = new Map(board.sensors.map((sensor) => [sensor.name, sensor]));
  return (
    <section class="list" aria-label="Servers">
      <Tools shown={servers.length} all={board.servers.length} {...{ order, setOrder, filter, setFilter }} />
      <div class="scroll">
        <table role="grid" aria-multiselectable="true" aria-label="Servers" onKeyDown={rows.onKeyDown} ref={rows.table}>
          <thead>
            <tr>
              <th scope="col" class="pick">
                <span class="hidden">Show</span>
              </th>
              {COLUMNS.map((column) => (
                <th
                  key={column.key}
                  scope="col"
                  class={column.isNumber ? "number" : ""}
                  aria-sort={order.key !== column.key ? "none" : order.isDescending ? "descending" : "ascending"}
                >
                  <button type="button" title={column.says} onClick={() => setOrder(nextOrder(order, column))}>
                    {column.title}
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {servers.map((server) => {
              const key = keyOf(server);
              const isSelected = selected.includes(key);
              return (
                <tr key={key} data-key={key} aria-selected={isSelected} {...rows.of(key)}>
                  <Cells server={server} sensor={sensors.get(server.sensor)} now={board.now} isSelected={isSelected} toggle={() => dispatch({ is: "toggle", key })} />
                </tr>
              );
            })}
          </tbody>
        </table>
        {servers.length === 0 && <p class="note">No server matches.</p>}
      </div>
    </section>
  );
}

function Nobody({ board }: { board: Board }) {
  const [text, hint] =
    board.sensors.length === 0
      ? ["No sensor has sent a report yet.", "Servers appear here as soon as a sensor sees connections to them."]
      : board.sensors.every(({ away }) => away)
        ? ["No sensor is connected.", "Servers appear here when a sensor connects and sees connections to them."]
        : ["No server is watched yet.", "The sensors see no connections. A server appears here with its first connection."];
  return (
    <section class="nobody">
      <h2>{text}</h2>
      <p>{hint}</p>
    </section>
  );
}

interface ToolsProps {
  shown: number;
  all: number;
  order: Order;
  setOrder: (order: Order) => void;
  filter: string;
  setFilter: (filter: string) => void;
}

function Tools({ shown, all, order, setOrder, filter, setFilter }: ToolsProps) {
  const input = useRef<HTMLInputElement>(null);
  // Layout effects run before the list is shown, so its keys work at once.
  useLayoutEffect(() => {
    const slash = (event: KeyboardEvent) => {
      if (event.key !== "/" || event.target instanceof HTMLInputElement) return;
      event.preventDefault();
      input.current?.focus();
    };
    addEventListener("keydown", slash);
    return () => removeEventListener("keydown", slash);
  }, []);
  return (
    <div class="tools">
      <label>
        <span class="hidden">Filter</span>
        <input
          ref={input}
          type="search"
          placeholder="Filter: state, address, sensor  ( / )"
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
          onKeyDown={(event) => event.key === "Escape" && setFilter("")}
        />
      </label>
      <label class="sort">
        Sort{" "}
        <select value={order.key} onChange={(event) => setOrder(nextOrder({ key: "", isDescending: false }, COLUMNS.find(({ key }) => key === event.currentTarget.value)!))}>
          {COLUMNS.map(({ key, title }) => (
            <option key={key} value={key}>
              {title}
            </option>
          ))}
        </select>
      </label>
      <p class="hint">
        {shown === all ? count(all) : `${count(shown)} of ${count(all)}`} {all === 1 ? "server" : "servers"}
        <span class="keys"> · ↑ ↓ move, Enter shows, Space adds, Esc clears</span>
      </p>
    </div>
  );
}

interface CellsProps {
  server: Server;
  sensor: Sensor | undefined;
  now: number;
  isSelected: boolean;
  toggle: () => void;
}

function Cells({ server, sensor, now, isSelected, toggle }: CellsProps) {
  const [long, short] = [judged(server), recent(server)];
  const silent = silentSince(sensor, now);
  return (
    <>
      <td class="pick">
        <input
          type="checkbox"
          tabIndex={-1}
          checked={isSelected}
          aria-label={`Show ${server.server} of ${server.sensor}`}
          onClick={(event) => event.stopPropagation()}
          onChange={toggle}
        />
      </td>
      <td class="state">
        <Sign state={server.state} isPast={silent !== null} />
        {silent !== null && <small class="then"> at {moment(silent, now)}</small>}
      </td>
      <th scope="row" class="server">
        {server.server}
      </th>
      <td class="sensor">
        {server.sensor}{" "}
        {silent !== null && (
          <small class="silent">
            {sensor?.away === true ? "disconnected" : "silent"}, {lastReport(silent, now)}
          </small>
        )}
      </td>
      <Figure title="Open" text={count(server.open)} />
      <Figure title="Requests" text={rate(short?.answered_per_s)} />
      <Figure title="p99" text={milliseconds(short?.response_p99_ms)} />
      {SHARES.map(({ letter, short, value }) => (
        <Figure key={letter} title={short} as={letter.toLowerCase()} text={percent(server.shares === null ? null : value(server.shares))} />
      ))}
      <Figure title="Resumed" text={percent(resumedShare(long))} />
    </>
  );
}

function Figure({ title, text, as = title.toLowerCase() }: { title: string; text: string; as?: string }) {
  return (
    <td class={`number ${as}`} data-title={title}>
      {text}
    </td>
  );
}

// Tab reaches one row, and arrow keys reach the others from there.
function useRows(keys: readonly string[], selected: readonly string[], dispatch: (action: Action) => void) {
  const table = useRef<HTMLTableElement>(null);
  const [active, setActive] = useState<string | null>(null);
  const current = active !== null && keys.includes(active) ? active : (keys.find((key) => selected.includes(key)) ?? keys[0]);
  const row = (key: string) => [...(table.current?.tBodies[0]?.rows ?? [])].find((row) => row.dataset["key"] === key);
  useKeptFocus(table, () => (current === undefined ? undefined : row(current)));

  const move = (to: number) => {
    const key = keys[Math.max(0, Math.min(keys.length - 1, to))];
    if (key === undefined) return;
    setActive(key);
    row(key)?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const isRow = event.target instanceof HTMLTableRowElement && event.target.dataset["key"] !== undefined;
    if (!isRow || event.altKey || current === undefined) return;
    const at = keys.indexOf(current);
    const actions: Record<string, () => void> = {
      ArrowDown: () => move(at + 1),
      ArrowUp: () => move(at - 1),
      Home: () => move(0),
      End: () => move(keys.length - 1),
      PageDown: () => move(at + 10),
      PageUp: () => move(at - 10),
      Enter: () => dispatch(event.ctrlKey || event.shiftKey ? { is: "toggle", key: current } : { is: "select", keys: [current] }),
      " ": () => dispatch({ is: "toggle", key: current }),
      Escape: () => dispatch({ is: "select", keys: [] }),
    };
    const action = actions[event.key];
    if (action === undefined) return;
    event.preventDefault();
    action();
  };
  const of = (key: string) => ({
    tabIndex: key === current ? 0 : -1,
    onFocus: () => setActive(key),
    onClick: (event: MouseEvent) => dispatch(event.ctrlKey || event.metaKey || event.shiftKey ? { is: "toggle", key } : { is: "select", keys: [key] }),
  });
  return { table, onKeyDown, of };
}

// When the order changes, browsers take the focus from a moved row. It gets the focus back, unless the user moved it
// elsewhere.
function useKeptFocus(table: { current: HTMLTableElement | null }, row: () => HTMLElement | undefined): void {
  const isWanted = useRef(false);
  useLayoutEffect(() => {
    const entered = (event: FocusEvent) => {
      isWanted.current = event.target instanceof HTMLTableRowElement;
    };
    const pressed = (event: PointerEvent) => {
      if (!(event.target instanceof Node && table.current?.contains(event.target))) isWanted.current = false;
    };
    addEventListener("focusin", entered);
    addEventListener("pointerdown", pressed);
    return () => {
      removeEventListener("focusin", entered);
      removeEventListener("pointerdown", pressed);
    };
  }, []);
  useLayoutEffect(() => {
    if (isWanted.current && document.activeElement === document.body) row()?.focus({ preventScroll: true });
  });
}
