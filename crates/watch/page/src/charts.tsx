// What ended, what was asked, how long answers took, what is open: over the held time.
import type { Row } from "./board.ts";
import type { Drawn } from "./chart.tsx";
import { Chart } from "./chart.tsx";
import { milliseconds, rate, short } from "./format.ts";
import { ENDINGS, bins, openAtEnds, openSeries, perSecond, quantiles, stack } from "./series.ts";

interface Props {
  rows: readonly Row[];
  columns: readonly string[];
  boundsMs: readonly number[];
  from: number;
  // After that nothing is known.
  until: number;
  to: number;
  open: number;
}

export function Charts({ rows, columns, boundsMs, from, until, to, open }: Props) {
  const binned = bins(rows, columns.length, from, to, until);
  const of = (name: string) => perSecond(binned, columns.indexOf(name));
  const at = { xs: binned.starts, width: binned.width, from, to };
  const endings = ENDINGS.map((name) => of(name));
  const tops = stack(endings);
  const stacked = ENDINGS.map((name, at): Drawn => ({ name, color: name, values: endings[at]!, drawn: tops[at]!, isArea: true }));
  const rates: Drawn[] = [
    { name: "opened", color: "line-1", values: of("opened") },
    { name: "answered", color: "line-2", values: of("answered") },
    { name: "unanswered", color: "line-3", values: of("unanswered") },
  ];
  const first = columns.indexOf("response_0");
  const buckets = binned.sums.slice(first, first + boundsMs.length + 1);
  const responses: Drawn[] = [
    { name: "p50", color: "line-2", values: quantiles(buckets, boundsMs, 0.5) },
    { name: "p99", color: "line-3", values: quantiles(buckets, boundsMs, 0.99) },
  ];
  const opened: Drawn[] = [{ name: "open", color: "line-1", values: openSeries(openAtEnds(rows, columns, open), binned) }];
  return (
    <>
      <Chart title="Endings per second" height={150} series={stacked} text={rate} {...at} />
      <Chart title="Connections and requests per second" height={110} series={rates} text={rate} {...at} />
      <Chart title="Time to the first octet, ms" height={90} series={responses} text={milliseconds} {...at} />
      <Chart title="Open connections" height={90} series={opened} text={short} {...at} />
    </>
  );
}
