// The live stream: it comes back by itself, and says when nothing comes.
import type { Board } from "./board.ts";

// Stale: nothing has come for a while.
export type Link = "connecting" | "live" | "stale";

export interface Listener {
  board(board: Board): void;
  link(link: Link): void;
  // It is there again, or for the first time: what came between is not known.
  opened(): void;
}

// Ticks come each second.
const STALE_MS = 3_500;
// The stream says something each 15 seconds, even if it is nothing.
const GIVE_UP_MS = 10_000;
const RETRY_MS = 1_000;

// Begins to listen; the result ends it.
export function listen(url: string, listener: Listener): () => void {
  let source: EventSource;
  let heard = performance.now();
  let begun = heard;
  let link: Link = "connecting";
  let now: number | undefined;
  const tell = (is: Link) => {
    if (link !== is) listener.link((link = is));
  };
  const begin = () => {
    begun = performance.now();
    source = new EventSource(url);
    source.addEventListener("open", () => listener.opened());
    source.addEventListener("board", (event: MessageEvent<string>) => {
      const board = JSON.parse(event.data) as Board;
      // Who comes back is told the latest there is, which is no news if time does not go on.
      if (board.now === now) return;
      now = board.now;
      heard = performance.now();
      listener.board(board);
      tell("live");
    });
  };
  // A browser tries again by itself, but not after an answer that is an error, and not while it believes a dead connection.
  const look = () => {
    const silence = performance.now() - heard;
    if (silence > STALE_MS) tell("stale");
    const wait = source.readyState === EventSource.CLOSED ? RETRY_MS : GIVE_UP_MS;
    if (silence > STALE_MS && performance.now() - begun > wait) {
      source.close();
      begin();
    }
  };
  begin();
  const timer = setInterval(look, 500);
  return () => {
    clearInterval(timer);
    source.close();
  };
}

// Where the past of a server is.
export function courseUrl(sensor: string, server: string): string {
  return `/api/course?${new URLSearchParams({ sensor, server })}`;
}
