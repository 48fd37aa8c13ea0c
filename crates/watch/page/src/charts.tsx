// Charts of endings, requests, response times and open connections, over the stored time.
import type { Row, Server } from "./board.ts";
import { recent } from "./board.ts";
import type { Drawn } from "./chart.tsx";
import { Chart } from "./chart.tsx";
import { milliseconds, moment, rate, short } from "./format.ts";
import { time } from "./history.ts";
import type { Bins } from "./series.ts";
import { ENDINGS, bins, lately, openAtEnds, openSeries, perSecond, quantiles, stack } from "./series.ts";

interface Props {
  rows: readonly Row[];
  columns: readonly string[];
  boundsMs: readonly number[];
  server: Server;
  from: number;
  // The end of the last complete second.
  until: number;
  to: number;
}

export function Charts({ rows, columns, boundsMs, server, from, until, to }: Props) {
  const whole = rows.filter((row) => time(row) < until);
  const binned = bins(whole, columns.length, from, to, until);
  // Legends without a cursor cover the same seconds as the facts beside the diagram.
  const width = recent(server)?.covered_s ?? 0;
  const last = lately(whole, columns.length, until, width);
  const of = (name: string) => ({ values: perSecond(binned, columns.indexOf(name)), now: perSecond(last, columns.indexOf(name))[0] ?? null });
  const at = { xs: binned.starts, width: binned.width, from, to, last: to > until ? `${width} s up to ${moment(until, to)}` : `last ${width} s` };
  const endings = ENDINGS.map((name) => of(name));
  const tops = stack(endings.map(({ values }) => values));
  const stacked = ENDINGS.map((name, at): Drawn => ({ name, color: name, ...endings[at]!, drawn: tops[at]!, isArea: true }));
  const rates: Drawn[] = [
    { name: "opened", color: "line-1", ...of("opened") },
    { name: "answered", color: "line-2", ...of("answered") },
    { name: "unanswered", color: "line-3", ...of("unanswered") },
  ];
  const first = columns.indexOf("response_0");
  const quantile = ({ sums }: Bins, share: number) => quantiles(sums.slice(first, first + boundsMs.length + 1), boundsMs, share);
  const response = (name: string, color: string, share: number, now: number | null | undefined): Drawn => ({
    name,
    color,
    values: quantile(binned, share),
    now: now ?? null,
  });
  const responses = [
    response("p50", "line-2", 0.5, recent(server)?.response_p50_ms),
    response("p99", "line-3", 0.99, recent(server)?.response_p99_ms),
  ];
  const open = openSeries(openAtEnds(whole, columns, server.open), binned);
  const opened: Drawn[] = [{ name: "open", color: "line-1", values: open, now: server.open }];
  return (
    <>
      <Chart title="Endings per second" height={150} series={stacked} text={rate} {...at} />
      <Chart title="Connections and requests per second" height={110} series={rates} text={rate} {...at} />
      <Chart title="Time to the first octet, ms (log scale)" height={100} series={responses} text={milliseconds} isLog {...at} />
      <Chart title="Open connections" height={90} series={opened} text={short} {...at} last={to > until ? `at ${moment(until, to)}` : "now"} />
    </>
  );
}
