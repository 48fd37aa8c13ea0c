import assert from "node:assert/strict";
import { test } from "node:test";
import { COLUMNS, WORST_FIRST, listed, nextOrder } from "../src/listing.ts";
import { server, span } from "./common.ts";

const named = (address: string, parts = {}) => server({ server: address, ...parts });
const addresses = (servers: readonly { server: string }[]) => servers.map((it) => it.server);

test("the worst are first, and equals stand in the order of addresses", () => {
  const servers = [
    named("10.0.0.10:80"),
    named("10.0.0.9:80"),
    named("10.0.0.1:80", { state: "idle" }),
    named("10.0.0.2:80", { state: "stopped" }),
    named("10.0.0.3:80", { state: "saturated" }),
  ];
  assert.deepEqual(addresses(listed(servers, WORST_FIRST, "")), ["10.0.0.2:80", "10.0.0.3:80", "10.0.0.9:80", "10.0.0.10:80", "10.0.0.1:80"]);
});

test("all words of a filter have to be there", () => {
  const servers = [named("a:1", { sensor: "Front one" }), named("b:1", { sensor: "front", state: "stopped" }), named("c:1")];
  assert.deepEqual(addresses(listed(servers, WORST_FIRST, " FRONT  stop ")), ["b:1"]);
  assert.deepEqual(addresses(listed(servers, WORST_FIRST, "front")), ["b:1", "a:1"]);
  assert.deepEqual(listed(servers, WORST_FIRST, "nobody"), []);
});

test("what has no value is last either way", () => {
  const response = (response_p99_ms: number | null) => ({ spans: [span({ response_p99_ms })] });
  const servers = [named("a:1", response(null)), named("b:1", response(5)), named("c:1", response(50))];
  assert.deepEqual(addresses(listed(servers, { key: "p99", isDescending: true }, "")), ["c:1", "b:1", "a:1"]);
  assert.deepEqual(addresses(listed(servers, { key: "p99", isDescending: false }, "")), ["b:1", "c:1", "a:1"]);
});

test("a heading turns the order, and another begins with the most", () => {
  const [state, open] = [COLUMNS[0]!, COLUMNS.find(({ key }) => key === "open")!];
  assert.deepEqual(nextOrder(WORST_FIRST, state), { key: "state", isDescending: true });
  assert.deepEqual(nextOrder(WORST_FIRST, open), { key: "open", isDescending: true });
});

test("every column says something of a server of which nothing is known", () => {
  for (const column of COLUMNS) assert.doesNotThrow(() => column.value(server({ spans: [] })));
});
