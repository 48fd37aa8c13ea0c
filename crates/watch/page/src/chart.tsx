// A chart by uPlot. Its legend has the values under the cursor, or else the latest. All charts share one cursor.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { clock, moment } from "./format.ts";
import { decades, powers } from "./scale.ts";

export interface Drawn {
  name: string;
  // The name of a custom property in style.css, without its dashes.
  color: string;
  values: readonly (number | null)[];
  // The value in the legend without a cursor.
  now: number | null;
  // The drawn values, if they differ because the series is stacked on others.
  drawn?: readonly (number | null)[];
  isArea?: boolean;
}

interface Props {
  title: string;
  height: number;
  series: readonly Drawn[];
  // The begin of each bin. `width` is the length of a bin in seconds.
  xs: readonly number[];
  width: number;
  from: number;
  to: number;
  // The time in the legend without a cursor.
  last: string;
  // Whether the scale is logarithmic: a single high value must not flatten all others.
  isLog?: boolean;
  text: (value: number | null | undefined) => string;
}

export function Chart(props: Props) {
  const { title, series, xs, width, last, text } = props;
  const place = useRef<HTMLDivElement>(null);
  const [cursor, setCursor] = useState<number | null>(null);
  usePlot(place, props, setCursor);
  // The last x is only the end of the last bin.
  const at = cursor === null || xs.length === 0 ? null : Math.min(cursor, xs.length - 1);
  const said = ({ values, now }: Drawn) => (at === null ? now : values[at]);
  const shown = series.filter(({ isArea, values }) => isArea !== true || values.some((value) => value !== null && value > 0));
  return (
    <figure class="chart">
      <figcaption>
        <span class="title">{title}</span>
        <span class="at">{at === null ? last : `${moment(xs[at]!, props.to)}, ${width} s`}</span>
      </figcaption>
      <div class="plot" ref={place} aria-hidden="true" />
      <ul class="legend">
        {shown.map((drawn) => (
          <li key={drawn.name}>
            <i style={{ background: `var(--${drawn.color})` }} aria-hidden="true" />
            {drawn.name} <b>{text(said(drawn))}</b>
          </li>
        ))}
        {shown.length === 0 && <li>no connection ended</li>}
      </ul>
    </figure>
  );
}

function usePlot(place: { current: HTMLDivElement | null }, props: Props, setCursor: (at: number | null) => void): void {
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  useEffect(() => {
    const element = place.current!;
    const made = new uPlot(options(element.clientWidth, () => latest.current, setCursor), dataOf(latest.current), element);
    plot.current = made;
    const resized = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: latest.current.height }));
    resized.observe(element);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const recolored = () => made.redraw(true, true);
    dark.addEventListener("change", recolored);
    return () => {
      dark.removeEventListener("change", recolored);
      resized.disconnect();
      made.destroy();
    };
  }, []);
  useEffect(() => {
    plot.current?.batch(() => {
      plot.current?.setData(dataOf(props), false);
      plot.current?.setScale("x", { min: props.from, max: props.to });
    });
  });
}

// The topmost series of a stack is drawn first, so that those below cover it. A step ends where the next one begins,
// and the last one where its bin ends.
function dataOf({ xs, width, series }: Props): uPlot.AlignedData {
  const end = xs.at(-1);
  if (end === undefined) return [[], ...series.map(() => [])];
  const drawn = series.map(({ drawn, values }) => [...(drawn ?? values), (drawn ?? values).at(-1) ?? null]).reverse();
  return [[...xs, end + width], ...drawn];
}

const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
const SYNC = uPlot.sync("time");

function options(width: number, props: () => Props, setCursor: (at: number | null) => void): uPlot.Options {
  const { height, series, isLog } = props();
  const ink = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const axis: uPlot.Axis = {
    stroke: () => ink("quiet"),
    grid: { stroke: () => ink("rule"), width: 1 },
    ticks: { show: false },
    font: "11px system-ui, sans-serif",
  };
  return {
    width,
    height,
    padding: [6, 18, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: SYNC.key, scales: ["x", null] }, drag: { x: false, y: false }, points: { show: false }, y: false },
    hooks: { setCursor: [(made) => setCursor(made.cursor.idx ?? null)] },
    scales: { x: { time: true, range: () => [props().from, props().to] }, y: isLog === true ? { distr: 3, range: (_, min, max) => decades(min, max) } : { range: (_, __, max) => [0, Math.max(max ?? 0, 1) * 1.05] } },
    axes: [
      { ...axis, size: 24, gap: 6, space: 70, incrs: STEPS_S, values: (_, splits, __, ___, step) => splits.map((at) => (step < 60 ? clock(at) : clock(at).slice(0, 5))) },
      {
        ...axis,
        size: 46,
        gap: 4,
        space: 26,
        values: (_, splits) => splits.map((value) => tick(value)),
        ...(isLog === true ? { splits: (_: uPlot, __: number, min: number, max: number) => powers(min, max) } : {}),
      },
    ],
    series: [{}, ...[...series].reverse().map((it) => seriesOf(it, ink))],
  };
}

function seriesOf({ name, color, isArea }: Drawn, ink: (name: string) => string): uPlot.Series {
  const stepped = uPlot.paths.stepped!({ align: 1 });
  return {
    label: name,
    stroke: () => ink(color),
    width: isArea === true ? 0 : 1.5,
    points: { show: false },
    paths: stepped,
    ...(isArea === true ? { fill: () => ink(color) } : {}),
  };
}

function tick(value: number): string {
  return value >= 10_000 ? `${value / 1000}k` : String(Math.round(value * 1000) / 1000);
}
