// What is looked at: the view and its parameters, all of it in the URL behind the #.
import { batch, computed, effect, signal } from "@preact/signals";
import type { Made, Schemas, Step } from "./api";

export const VIEWS = ["runs", "run", "misses", "tools", "map", "why"] as const;
export type View = (typeof VIEWS)[number];
export const TITLES: Record<View, string> = {
  runs: "Runs",
  run: "Run",
  misses: "Misses",
  tools: "Tools",
  map: "Map",
  why: "Why",
};

export interface Place {
  view: View;
  params: URLSearchParams;
}

export const about = signal<Schemas["StudioAbout"] | null>(null);

function read(): Place {
  const [view, params] = location.hash.replace(/^#\/?/, "").split("?");
  const known = (VIEWS as readonly string[]).includes(view ?? "");
  return { view: known ? (view as View) : "run", params: new URLSearchParams(params ?? "") };
}

export const place = signal<Place>(read());

/** The query as it is typed; it stands in the address once the typing pauses. */
const draft = signal<string | null>(null);
const PAUSE = 300; // milliseconds; browsers refuse more than 200 addresses in half a minute
let timer = 0;

export const query = computed(() => draft.value ?? param("q"));

export function setQuery(text: string): void {
  draft.value = text;
  clearTimeout(timer);
  timer = setTimeout(() => go(place.value.view, {}, true), PAUSE);
}

function follow(): void {
  batch(() => {
    draft.value = null;
    place.value = read();
  });
}
addEventListener("hashchange", follow);
addEventListener("popstate", follow);

export type Changes = Record<string, string | null>;

/** The address of a view: the parameters of now with changes; null takes one out. */
export function address(view: View, changes: Changes = {}): string {
  const params = new URLSearchParams(place.value.params);
  if (draft.value !== null) params.set("q", draft.value);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") params.delete(name);
    else params.set(name, value);
  }
  const text = params.toString();
  return `#/${view}${text ? `?${text}` : ""}`;
}

/** Goes there; typing replaces the address, so that Back leaves what was typed at once. */
export function go(view: View, changes: Changes = {}, replace = false): void {
  const next = address(view, changes);
  clearTimeout(timer);
  if (replace) window.history.replaceState(null, "", next);
  else if (next !== location.hash) window.history.pushState(null, "", next);
  follow();
}

export const param = (name: string): string => place.value.params.get(name) ?? "";

// -- the run ------------------------------------------------------------------------------------

export const model = computed(() => param("model") || about.value?.models[0]?.name || "");

/** Calls as they stand in the address: names, or objects where more is known. */
export function readCalls(text: string): Made[] {
  try {
    const items: unknown = JSON.parse(text || "[]");
    if (!Array.isArray(items)) return [];
    return items
      .map((item) => (typeof item === "string" ? { tool: item } : item))
      .filter((item): item is Made => typeof item?.tool === "string" && item.tool !== "");
  } catch {
    return [];
  }
}

export const writeCalls = (calls: Made[]): string =>
  calls.length
    ? JSON.stringify(calls.map((call) => (Object.keys(call).length === 1 ? call.tool : call)))
    : "";

function readBefore(text: string): Record<string, unknown>[] {
  try {
    const items: unknown = JSON.parse(text || "[]");
    return Array.isArray(items) ? items : [];
  } catch {
    return [];
  }
}

/** The two forks of a run: the second one is there once it was forked. */
export const forks = computed<Step[]>(() => {
  const step = { model: model.value, query: query.value, before: readBefore(param("before")) };
  const first = { ...step, calls: readCalls(param("calls")) };
  if (!place.value.params.has("fork")) return [first];
  return [first, { ...step, calls: readCalls(param("fork")) }];
});

export const side = computed(() => (forks.value.length > 1 && param("side") === "2" ? 1 : 0));
export const step = computed<Step>(() => forks.value[side.value] as Step);

/** Changes the calls of a fork; an empty fork is written "[]", since it is there all the same. */
export function setCalls(calls: Made[], of = side.value): void {
  const text = writeCalls(calls);
  go(place.value.view, of ? { fork: text || "[]" } : { calls: text });
}

export const runChanges = (query: string, calls: Made[], before: unknown[] = []): Changes => ({
  q: query,
  calls: writeCalls(calls),
  before: before.length ? JSON.stringify(before) : null,
  fork: null,
  side: null,
  tool: null,
  against: null,
});

// -- light and dark -----------------------------------------------------------------------------

export const theme = signal<string>(localStorage.getItem("dtdr-theme") ?? "auto");
effect(() => {
  if (theme.value === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", theme.value);
  localStorage.setItem("dtdr-theme", theme.value);
});

export const percent = (value: number): string =>
  value >= 0.9995 ? "100 %" : value === 0 ? "0 %" : value < 0.001 ? "<0.1 %" : `${(100 * value).toFixed(1)} %`;
export const count = (value: number): string => value.toLocaleString("en");
