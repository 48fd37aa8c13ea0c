// Which tab listens. A browser opens few connections to one server (six by HTTP/1.1), and a stream takes one for as long as it lasts: so of
// all tabs one listens, the leader, and passes on what it hears.
//
//   follower ── nothing of a leader for LEADER_LOST_MS, and a little longer by chance ──▶ leader, of the next term
//   leader ──── a leader of a later term, or of the same with a greater id ─────────────▶ follower
//
// Pure: messages and the time come in, what is to be done comes out. A tab in the background may be late by any time; another leads then.

export type Message =
  // I am here: has somebody heard anything?
  | { is: "who" }
  | { is: "lead"; term: number; id: string }
  // What the stream said.
  | { is: "board"; term: number; id: string; data: string }
  // The leader goes.
  | { is: "leave"; term: number };

// A leader says so each second, and with all that it passes on.
export const LEAD_EVERY_MS = 1_000;
export const LEADER_LOST_MS = 3_000;
// So long a new tab waits whether there is a leader.
export const FIRST_WAIT_MS = 300;
// What is left to chance, so that not all lead at once.
const CHANCE_MS = 400;

export class Election {
  isLeader = false;
  // When this tab leads if nothing is heard of a leader.
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

  // Time goes on. What is to be said, if anything; who leads says so.
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

  // Another tab said something of who leads.
  hear(message: Message, now: number): void {
    if (message.is === "leave") {
      if (!this.isLeader && message.term >= this.term) this.due = now + this.chance() * CHANCE_MS;
    } else if (message.is !== "who" && this.gives(message.term, message.id)) {
      this.isLeader = false;
      this.term = message.term;
      this.due = now + LEADER_LOST_MS + this.chance() * CHANCE_MS;
    }
  }

  // Leads no more, if it did.
  leave(now: number): Message | null {
    const was = this.isLeader;
    this.isLeader = false;
    this.due = now + LEADER_LOST_MS;
    return was ? { is: "leave", term: this.term } : null;
  }

  // What a leader has to say to who asks.
  lead(): Message {
    return { is: "lead", term: this.term, id: this.id };
  }

  pass(data: string): Message {
    return { is: "board", term: this.term, id: this.id, data };
  }

  // Whether the one of that term leads, and not this tab.
  private gives(term: number, id: string): boolean {
    return term > this.term || (term === this.term && (!this.isLeader || id > this.id));
  }
}
