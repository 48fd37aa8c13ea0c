// The state of the page.
import type { Board, Course } from "./board.ts";
import { heldSpan, keyOf } from "./board.ts";
import type { History } from "./history.ts";
import { NOTHING, withCourse, withNews } from "./history.ts";
import type { Link } from "./live.ts";
import { WORST_FIRST, listed } from "./listing.ts";

export interface PageState {
  readonly board: Board | null;
  readonly link: Link;
  // Shown side by side, in this order.
  readonly selected: readonly string[];
  // Of the selected servers.
  readonly histories: ReadonlyMap<string, History>;
}

export type Action =
  | { is: "board"; board: Board }
  | { is: "link"; link: Link }
  | { is: "course"; key: string; course: Course; asked: number }
  // Selects only these servers.
  | { is: "select"; keys: readonly string[] }
  // Selects one more server, or one fewer.
  | { is: "toggle"; key: string };

// The most selected servers: readers cannot compare more columns.
export const SELECTED_MAX = 8;

export function begin(selected: readonly string[]): PageState {
  return { board: null, link: "connecting", selected: selected.slice(0, SELECTED_MAX), histories: new Map() };
}

export function next(state: PageState, action: Action): PageState {
  switch (action.is) {
    case "board":
      return withBoard(state, action.board);
    case "link":
      return { ...state, link: action.link };
    case "course":
      return withHistory(state, action.key, (history) => withCourse(history, action.course, action.asked));
    case "select":
      return selecting(state, action.keys);
    case "toggle":
      return selecting(state, toggled(state.selected, action.key));
  }
}

function withBoard(state: PageState, board: Board): PageState {
  const isFirst = (state.board?.servers.length ?? 0) === 0 && state.selected.length === 0;
  const selected = isFirst ? worst(board) : state.selected;
  // Complete seconds begin and end a little before `now`, and sensors' clocks differ.
  const from = board.now - heldSpan(board.profile) - MARGIN_S;
  const histories = new Map(state.histories);
  for (const server of board.servers) {
    const key = keyOf(server);
    if (selected.includes(key)) histories.set(key, withNews(histories.get(key) ?? NOTHING, server, from));
  }
  return { ...state, board, selected, histories };
}

const MARGIN_S = 70;

// The server that is selected when the page opens.
function worst(board: Board): string[] {
  return listed(board.servers, WORST_FIRST, "").slice(0, 1).map(keyOf);
}

function withHistory(state: PageState, key: string, change: (history: History) => History): PageState {
  if (!state.selected.includes(key)) return state;
  return { ...state, histories: new Map(state.histories).set(key, change(state.histories.get(key) ?? NOTHING)) };
}

function selecting(state: PageState, keys: readonly string[]): PageState {
  const selected = [...new Set(keys)].slice(0, SELECTED_MAX);
  const histories = new Map([...state.histories].filter(([key]) => selected.includes(key)));
  return { ...state, selected, histories };
}

function toggled(keys: readonly string[], key: string): readonly string[] {
  return keys.includes(key) ? keys.filter((other) => other !== key) : [...keys, key];
}

// The selection is in the URL, so it survives a reload and can be shared.
export function toHash(selected: readonly string[]): string {
  return selected.map(encodeURIComponent).join("&");
}

export function ofHash(hash: string): string[] {
  const parts = hash.replace(/^#/, "").split("&").filter((part) => part !== "");
  try {
    return parts.map(decodeURIComponent).filter((key) => key.includes(" "));
  } catch {
    return [];
  }
}
