import assert from "node:assert/strict";
import { test } from "node:test";
import type { Message } from "../src/leader.ts";
import { Election, FIRST_WAIT_MS, LEADER_LOST_MS } from "../src/leader.ts";

// Tabs that receive each other's messages at once, unless they are frozen.
class Tabs {
  now = 0;
  readonly tabs: Election[] = [];
  readonly frozen = new Set<Election>();

  open(): Election {
    const number = this.tabs.length;
    const tab = new Election(`tab ${number}`, this.now, () => ((number * 7) % 10) / 10);
    this.tabs.push(tab);
    this.say(tab, { is: "who" });
    return tab;
  }

  say(from: Election, message: Message | null): void {
    if (message === null) return;
    for (const tab of this.tabs) {
      if (tab === from || this.frozen.has(tab)) continue;
      tab.hear(message, this.now);
      if (message.is === "who" && tab.isLeader) this.say(tab, tab.lead());
    }
  }

  pass(ms: number): void {
    for (const end = this.now + ms; this.now < end; this.now += 100) {
      for (const tab of this.tabs) if (!this.frozen.has(tab)) this.say(tab, tab.look(this.now));
    }
  }

  leaders(): Election[] {
    return this.tabs.filter((tab) => tab.isLeader && !this.frozen.has(tab));
  }
}

test("of all tabs one leads, and it stays the same", () => {
  const tabs = new Tabs();
  const first = tabs.open();
  tabs.pass(FIRST_WAIT_MS + 100);
  assert.deepEqual(tabs.leaders(), [first]);
  for (let at = 0; at < 8; at++) tabs.open();
  tabs.pass(60_000);
  assert.deepEqual(tabs.leaders(), [first]);
});

test("tabs that open at once agree", () => {
  const tabs = new Tabs();
  for (let at = 0; at < 8; at++) tabs.open();
  tabs.pass(2_000);
  assert.equal(tabs.leaders().length, 1);
});

test("a leader that goes is followed at once, one that freezes soon", () => {
  const tabs = new Tabs();
  const [first] = [tabs.open(), tabs.open(), tabs.open()];
  tabs.pass(2_000);
  const leader = tabs.leaders()[0]!;
  tabs.say(leader, leader.leave(tabs.now));
  tabs.frozen.add(leader);
  tabs.pass(500);
  assert.equal(tabs.leaders().length, 1);
  const next = tabs.leaders()[0]!;
  assert.notEqual(next, leader);
  tabs.frozen.add(next);
  tabs.pass(LEADER_LOST_MS + 1_000);
  assert.equal(tabs.leaders().length, 1);
  assert.notEqual(tabs.leaders()[0], next);
  // It resumes, and finds another leader.
  const now = tabs.leaders()[0];
  tabs.frozen.clear();
  tabs.pass(2_000);
  assert.deepEqual(tabs.leaders(), [now]);
  assert.equal(next.isLeader, false);
  assert.ok(first);
});
