// Elects the tab that holds the stream. A browser opens few connections to one server (six with HTTP/1.1), and a stream
// occupies one as long as it lasts. So one tab, the leader, receives the stream and passes it on to the others.
//
//   follower ── no message of a leader for LEADER_LOST_MS plus a random time ─────────────▶ leader, of the next term
//   leader ──── a leader of a later term, or of the same with a greater id ─────────────▶ follower
//
// Pure: messages and the time come in, messages to send come out. A tab in the background may be late by any time; then
// another tab becomes the leader.

export type Message =
  // A new tab asks for the leader and the latest board.
  | { is: "who" }
  | { is: "lead"; term: number; id: string }
  // The data of an event of the stream.
  | { is: "board"; term: number; id: string; data: string }
  // The leader closes.
  | { is: "leave"; term: number };

// A leader announces itself once a second, and with each event that it passes on.
export const LEAD_EVERY_MS = 1_000;
export const LEADER_LOST_MS = 3_000;
// How long a new tab waits for a leader.
export const FIRST_WAIT_MS = 300;
// The range of the random time, so that tabs do not become leaders at once.
const CHANCE_MS = 400;

export class Election {
  isLeader = false;
  // When this tab becomes the leader, unless it receives a leader's message.
  private due: number;
  private term = 0;
  private said = -Infinity;

  constructor(
    readonly id: string,
    now: number,
    private readonly chance: () => number = Math.random,
  ) {
    this.due = now + FIRST_WAIT_MS;
  }

  // Call it as time passes. Returns the message to send, if any: leaders announce themselves.
  look(now: number): Message | null {
    if (!this.isLeader && now >= this.due) {
      this.isLeader = true;
      this.term += 1;
      this.said = -Infinity;
    }
    if (!this.isLeader || now - this.said < LEAD_EVERY_MS) return null;
    this.said = now;
    return this.lead();
  }

  // Handles a message of another tab.
  hear(message: Message, now: number): void {
    if (message.is === "leave") {
      if (!this.isLeader && message.term >= this.term) this.due = now + this.chance() * CHANCE_MS;
    } else if (message.is !== "who" && this.gives(message.term, message.id)) {
      this.isLeader = false;
      this.term = message.term;
      this.due = now + LEADER_LOST_MS + this.chance() * CHANCE_MS;
    }
  }

  // Ends this tab's leadership.
  leave(now: number): Message | null {
    const was = this.isLeader;
    this.isLeader = false;
    this.due = now + LEADER_LOST_MS;
    return was ? { is: "leave", term: this.term } : null;
  }

  // The announcement of a leader.
  lead(): Message {
    return { is: "lead", term: this.term, id: this.id };
  }

  pass(data: string): Message {
    return { is: "board", term: this.term, id: this.id, data };
  }

  // Whether a tab with this term and id takes precedence over this one.
  private gives(term: number, id: string): boolean {
    return term > this.term || (term === this.term && (!this.isLeader || id > this.id));
  }
}
