// The states of a server, as a strip.
import type { Since } from "./board.ts";
import { clock, duration, moment } from "./format.ts";
import { stretches } from "./history.ts";

interface Props {
  timeline: readonly Since[];
  from: number;
  // The state after this time is unknown.
  until: number;
  to: number;
}

export function Timeline({ timeline, from, until: known, to }: Props) {
  const parts = stretches(timeline, from, known);
  const share = (seconds: number) => `${((seconds / (to - from)) * 100).toFixed(3)}%`;
  return (
    <figure class="timeline">
      <figcaption>States</figcaption>
      <ol class="strip" aria-label="States over time">
        {parts.map(({ state, since, until }) => (
          <li
            key={`${state} ${until === known ? "now" : until}`}
            class={state}
            style={{ left: share(since - from), width: share(until - since) }}
            title={`${state}: ${clock(since)} to ${moment(until, to)}, ${duration(until - since)}`}
          >
            <span>{state}</span>
            <span class="hidden"> from {clock(since)} to {clock(until)}</span>
          </li>
        ))}
      </ol>
      <div class="ends" aria-hidden="true">
        <span>{moment(from, to)}</span>
        <span>now</span>
      </div>
    </figure>
  );
}
