// The state of a server, by color, shape and word.
import type { State } from "./board.ts";

// A shape for each state, for readers who do not see the colors.
const SHAPES: Record<State, string> = {
  idle: "M8 3.5a4.5 4.5 0 1 0 .01 0Z",
  normal: "M8 2.5a5.5 5.5 0 1 0 .01 0Z",
  saturated: "M8 2 14.5 13.5H1.5Z",
  stopped: "M3 3h10v10H3Z",
};

// `isPast`: an earlier state. The present one is unknown.
export function Sign({ state, isPast }: { state: State; isPast: boolean }) {
  return (
    <span class={isPast ? `sign past ${state}` : `sign ${state}`}>
      <svg viewBox="0 0 16 16" aria-hidden="true">
        <path d={SHAPES[state]} />
      </svg>
      {state}
    </span>
  );
}
