// The live stream. It reconnects by itself, and reports when no events come. All tabs of a browser share one stream
// (leader.ts).
import type { Board } from "./board.ts";
import type { Message } from "./leader.ts";
import { Election } from "./leader.ts";

// Stale: no event has come for STALE_MS.
export type Link = "connecting" | "live" | "stale";

export interface Listener {
  board(board: Board): void;
  link(link: Link): void;
  // The stream is open, for the first time or again. Events in between were missed.
  opened(): void;
}

// Ticks come each second.
const STALE_MS = 3_500;
// A connection that seems open is replaced after this time without events. The server sends at least a comment each 15
// s.
const GIVE_UP_MS = 10_000;
const RETRY_MS = 1_000;
const LOOK_MS = 100;

// Begins to listen. The result ends it.
export function listen(url: string, listener: Listener): () => void {
  const channel = typeof BroadcastChannel === "function" ? new BroadcastChannel(`watari-watch ${url}`) : null;
  const election = new Election(Math.random().toString(36).slice(2), performance.now());
  let stream: Stream | null = null;
  let lastMessage = performance.now();
  let link: Link = "connecting";
  let now: number | undefined;
  let last: string | null = null;
  const post = (message: Message | null) => message !== null && channel?.postMessage(message);
  const setLink = (is: Link) => {
    if (link !== is) listener.link((link = is));
  };
  const take = (data: string) => {
    last = data;
    const board = JSON.parse(data) as Board;
    // After a reconnect, the latest board comes again. It is news only if its time has advanced.
    if (board.now === now) return;
    now = board.now;
    lastMessage = performance.now();
    listener.board(board);
    setLink("live");
  };
  // Only the leader has a stream.
  const follow = () => {
    const isLeader = channel === null || election.isLeader;
    if (isLeader && stream === null) {
      stream = open(url, {
        opened: listener.opened,
        board: (data) => {
          post(election.pass(data));
          take(data);
        },
      });
    } else if (!isLeader && stream !== null) {
      stream.close();
      stream = null;
    }
  };
  const look = () => {
    const silence = performance.now() - lastMessage;
    if (silence > STALE_MS) setLink("stale");
    if (channel !== null) post(election.look(performance.now()));
    follow();
    if (silence > STALE_MS) stream?.retry();
  };
  channel?.addEventListener("message", ({ data: message }: MessageEvent<Message>) => {
    election.hear(message, performance.now());
    follow();
    if (message.is === "board") take(message.data);
    if (message.is === "who" && election.isLeader) {
      post(election.lead());
      if (last !== null) post(election.pass(last));
    }
  });
  // A tab that closes gives up the leadership at once.
  const leave = () => {
    post(election.leave(performance.now()));
    follow();
  };
  addEventListener("pagehide", leave);
  post({ is: "who" });
  look();
  const timer = setInterval(look, LOOK_MS);
  return () => {
    clearInterval(timer);
    removeEventListener("pagehide", leave);
    leave();
    stream?.close();
    channel?.close();
  };
}

interface Stream {
  // Call it if no events come: reconnects if it is time for that.
  retry(): void;
  close(): void;
}

function open(url: string, on: { opened(): void; board(data: string): void }): Stream {
  let begun = 0;
  const begin = () => {
    begun = performance.now();
    const source = new EventSource(url);
    source.addEventListener("open", on.opened);
    source.addEventListener("board", (event: MessageEvent<string>) => on.board(event.data));
    return source;
  };
  let source = begin();
  return {
    // A browser reconnects by itself, but not after an error response, and not while a dead connection seems open.
    retry: () => {
      const wait = source.readyState === EventSource.CLOSED ? RETRY_MS : GIVE_UP_MS;
      if (performance.now() - begun < wait) return;
      source.close();
      source = begin();
    },
    close: () => source.close(),
  };
}

// The URL of a server's past.
export function courseUrl(sensor: string, server: string): string {
  return `/api/course?${new URLSearchParams({ sensor, server })}`;
}
