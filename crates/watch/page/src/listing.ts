// The order and the filter of the list.
import type { Server } from "./board.ts";
import { SHARES, STATES, judged, keyOf, recent, resumedShare } from "./board.ts";

export interface Column {
  key: string;
  title: string;
  // The full name, as a description.
  says: string;
  isNumber: boolean;
  value: (server: Server) => string | number | null;
}


export const COLUMNS: readonly Column[] = [
  { key: "state", title: "State", says: "worst first", isNumber: false, value: (it) => -STATES.indexOf(it.state) },
  { key: "server", title: "Server", says: "address and port", isNumber: false, value: (it) => it.server },
  { key: "sensor", title: "Sensor", says: "the sensor that reports the server", isNumber: false, value: (it) => it.sensor },
  { key: "open", title: "Open", says: "open connections, at the end of the last complete second", isNumber: true, value: (it) => it.open },
  { key: "rate", title: "Requests", says: "answered requests per second, last 10 s", isNumber: true, value: (it) => recent(it)?.answered_per_s ?? null },
  { key: "p99", title: "p99", says: "99th percentile of the time to the first octet of an answer, last 10 s", isNumber: true, value: (it) => recent(it)?.response_p99_ms ?? null },
  ...SHARES.map(({ letter, name, says, value }) => ({
    key: letter.toLowerCase(),
    title: `${letter} ${name}`,
    says,
    isNumber: true,
    value: ({ shares }: Server) => (shares === null ? null : value(shares)),
  })),
  { key: "resumed", title: "Resumed", says: "share of TLS sessions that were resumed", isNumber: true, value: (it) => resumedShare(judged(it)) },
];

export interface Order {
  key: string;
  isDescending: boolean;
}

export const WORST_FIRST: Order = { key: "state", isDescending: false };

// The order after a click on a heading. Numbers are first sorted from the largest.
export function nextOrder(order: Order, column: Column): Order {
  if (order.key === column.key) return { ...order, isDescending: !order.isDescending };
  return { key: column.key, isDescending: column.isNumber };
}

// The servers that match all words of the filter, in this order. Servers without a value are last, and equal ones are
// in the order of addresses.
export function listed(servers: readonly Server[], order: Order, filter: string): Server[] {
  const words = filter.toLowerCase().split(/\s+/).filter((word) => word !== "");
  const isMeant = (server: Server) => {
    const text = `${server.state} ${server.server} ${server.sensor}`.toLowerCase();
    return words.every((word) => text.includes(word));
  };
  const column = COLUMNS.find(({ key }) => key === order.key) ?? COLUMNS[0]!;
  return servers.filter(isMeant).sort((a, b) => compare(column, a, b, order.isDescending) || collate(keyOf(a), keyOf(b)));
}

function compare(column: Column, a: Server, b: Server, isDescending: boolean): number {
  const [left, right] = [column.value(a), column.value(b)];
  if (left === null || right === null) return Number(left === null) - Number(right === null);
  const ascending = typeof left === "number" && typeof right === "number" ? left - right : collate(String(left), String(right));
  return isDescending ? -ascending : ascending;
}

const collator = new Intl.Collator("en", { numeric: true });

function collate(a: string, b: string): number {
  return collator.compare(a, b);
}
