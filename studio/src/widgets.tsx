// Small parts that several views share.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Answer } from "./api";
import { about, address, count, go, param, percent, runChanges } from "./state";
import type { View } from "./state";
import type { Schemas } from "./api";

/** What stands in place of an answer that is not there: loading, an error, or nothing. */
export function Waiting<T>({ answer, empty }: { answer: Answer<T>; empty?: string }) {
  if (answer.error) return <p class="error" role="alert">{answer.error}</p>;
  if (answer.loading && !answer.data) return <p class="empty" role="status">Loading…</p>;
  return empty ? <p class="empty">{empty}</p> : null;
}

export function Bar({ share, kind = "" }: { share: number; kind?: string }) {
  return (
    <span class={`bar ${kind}`} aria-hidden="true">
      <span style={{ width: `${Math.max(0, Math.min(1, share)) * 100}%` }} />
    </span>
  );
}

/** What may be wider than the window: it scrolls, with an arrow at each side on which it goes on. */
export function Scroll({ label, kind = "", children }: {
  label: string; kind?: string; children: ComponentChildren;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [cut, setCut] = useState("");
  const look = () => {
    if (!box.current) return; // taken from the page before the browser reported a size
    const { scrollLeft, scrollWidth, clientWidth } = box.current;
    const sides = [scrollLeft > 1 && "is-cut-left",
      scrollLeft + clientWidth < scrollWidth - 1 && "is-cut-right"];
    setCut(sides.filter(Boolean).join(" "));
  };
  useEffect(look);
  useEffect(() => {
    const sizes = new ResizeObserver(look);
    for (const element of [box.current!, ...box.current!.children]) sizes.observe(element);
    return () => sizes.disconnect();
  }, []);
  return (
    <div class={`scroll-frame ${cut}`}>
      <div class={`scroll ${kind}`} ref={box} onScroll={look} tabIndex={cut ? 0 : undefined}
        role="group" aria-label={label}>{children}</div>
    </div>
  );
}

/** A name of a tool: as text, whatever it holds, cut by CSS with the whole name on hover. */
export function Name({ of }: { of: string }) {
  return <bdi class="name" title={of}>{of}</bdi>;
}

export function Field(props: { label: string; children: ComponentChildren }) {
  return (
    <label class="field">
      <span>{props.label}</span>
      {props.children}
    </label>
  );
}

export function Select(props: {
  label: string;
  value: string;
  options: [string, string][];
  set: (value: string) => void;
}) {
  return (
    <Field label={props.label}>
      <select value={props.value} onChange={(event) => props.set(event.currentTarget.value)}>
        {props.options.map(([value, title]) => (
          <option key={value} value={value} selected={value === props.value}>{title}</option>
        ))}
      </select>
    </Field>
  );
}

/** A run as a link into the run view. */
export function RunLink({ run }: { run: Schemas["RunLine"] }) {
  const more = run.calls - run.tools.length;
  return (
    <a class="run-link" href={address("run", { ...runChanges("", []), run: String(run.position) })}>
      <bdi>{run.query || `Run ${run.position + 1}`}</bdi>
      <small>
        {run.outcome === "failure" ? <b class="bad">failed · </b> : null}
        <bdi>{run.tools.join(" → ")}</bdi>
        {more > 0 ? ` … ${more} more` : ""}
      </small>
    </a>
  );
}

/** Why nothing says how runs are ranked: not yet, or never. */
export function Scoring({ text }: { text: string }) {
  return <p class="note" role="status">{text}</p>;
}

/** Fields for text, group and outcome of runs. */
export function RunFilters({ view }: { view: View }) {
  const set = (name: string) => (value: string) => go(view, { [name]: value, from: null }, true);
  // A digest that an import gave a group says nothing to a reader.
  const groups = (about.value?.groups ?? []).filter((name) => !/^[0-9a-f]{12,}$/.test(name));
  if (!about.value?.runs) return null;
  return (
    <>
      <Field label="Query contains">
        <input type="search" value={param("text")}
          onInput={(event) => set("text")(event.currentTarget.value)} />
      </Field>
      <label class="check">
        <input type="checkbox" checked={!!param("regex")}
          onChange={(event) => set("regex")(event.currentTarget.checked ? "1" : "")} />
        as a regular expression
      </label>
      {groups.length > 0 && (
        <Select label="Group" value={param("group")} set={set("group")}
          options={[["", "all"], ...groups.map((name): [string, string] => [name, name])]} />
      )}
      <Select label="Outcome" value={param("outcome")} set={set("outcome")}
        options={[["", "all"], ["success", "success"], ["failure", "failure"],
          ["unknown", "not known"]]} />
    </>
  );
}

/** Text filter, group and outcome, for the map and the list of runs. */
export const runFilter = (): Schemas["RunSelection"] => ({
  text: param("text"),
  group: param("group"),
  regex: !!param("regex"),
  ...(param("outcome") ? { outcome: param("outcome") as "success" } : {}),
});

/** The same and the tool that runs call, for the list of runs. */
export const listFilter = (): Schemas["RunSelection"] => ({
  ...runFilter(),
  tool: param("calls_tool"),
  since: param("since") || null,
  until: param("until") || null,
});

export const isFiltered = (): boolean => !!(param("text") || param("group") || param("outcome"));

export function ModelLine() {
  const model = about.value?.models.find((item) => item.name === (param("model") || item.name));
  if (!model) return null;
  return (
    <small class="muted">
      {model.retriever}, {count(model.tools)} tools, {count(model.demonstrations)} demonstrations
    </small>
  );
}

export { percent };
