// The state of a server, by colour, shape and word.
import type { State } from "./board.ts";

// A shape of its own for each, for those who do not see the colours.
const SHAPES: Record<State, string> = {
  idle: "M8 3.5a4.5 4.5 0 1 0 .01 0Z",
  normal: "M8 2.5a5.5 5.5 0 1 0 .01 0Z",
  saturated: "M8 2 14.5 13.5H1.5Z",
  stopped: "M3 3h10v10H3Z",
};

// `isPast`: that was its state, and what it is in now is not known.
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
