// One call: what is known of it, to be typed into; and the next one, with its arguments' sources.
import { useRef, useState } from "preact/hooks";
import type { Made, Schemas } from "./api";
import { percent } from "./state";
import { Field, Name, Scroll, Select } from "./widgets";

type Predicted = Schemas["CallPrediction"];
type Source = Schemas["ValueSource"];

const PAUSE = 300; // milliseconds of typing after which the text counts

/** A text that counts while it is typed, and stays as it is typed until its field is left. */
function Typed({ label, value, read }: {
  label: string;
  value: string;
  read: (text: string) => void;
}) {
  const [draft, setDraft] = useState<string | null>(null);
  const timer = useRef(0);
  const type = (text: string) => {
    setDraft(text);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => read(text), PAUSE);
  };
  const leave = (text: string) => {
    clearTimeout(timer.current);
    if (draft !== null) read(text);
    setDraft(null);
  };
  return (
    <Field label={label}>
      <textarea rows={2} value={draft ?? value} spellcheck={false}
        onInput={(event) => type(event.currentTarget.value)}
        onBlur={(event) => leave(event.currentTarget.value)} />
    </Field>
  );
}

/** A call with what is known of it, to be opened and typed into. */
export function CallLine({ call, change, used }: {
  call: Made;
  change: (call: Made) => void;
  used: string[];
}) {
  const [wrong, setWrong] = useState("");
  const asText = (value: unknown) =>
    value === undefined || value === null ? "" : typeof value === "string" ? value
      : JSON.stringify(value, null, 1);
  const put = (name: "arguments" | "output" | "status", value: unknown) => {
    const next: Record<string, unknown> = { ...call, [name]: value };
    if (value === undefined) delete next[name];
    change(next as unknown as Made);
  };
  const readArguments = (text: string) => {
    try {
      const value = text.trim() ? JSON.parse(text) : undefined;
      if (value !== undefined && (typeof value !== "object" || !value || Array.isArray(value))) {
        throw new Error();
      }
      setWrong("");
      put("arguments", value);
    } catch {
      setWrong('Arguments are a JSON object, such as {"name": "Ann"}.');
    }
  };
  const readOutput = (text: string) => {
    if (!text.trim()) return put("output", undefined);
    try {
      put("output", JSON.parse(text));
    } catch {
      put("output", text);
    }
  };
  const isKnown = call.output !== undefined && call.output !== null;
  return (
    <li>
      <details>
        <summary>
          <Name of={call.tool} />
          <small class="muted">
            {call.status === "error" ? <b class="bad">failed </b> : null}
            {isKnown ? "returned something" : call.arguments ? "arguments known" : ""}
          </small>
          {used.length > 0 && (
            <small><mark>its output is used{used.some(Boolean) ? `: ${used.filter(Boolean).join(", ")
              }` : ""}</mark></small>
          )}
        </summary>
        <Field label="Arguments (JSON)">
          <textarea rows={2} value={asText(call.arguments)} spellcheck={false}
            onChange={(event) => readArguments(event.currentTarget.value)} />
        </Field>
        {wrong && <p class="error" role="alert">{wrong}</p>}
        <Typed label="Output (text or JSON)" value={asText(call.output)} read={readOutput} />
        <Select label="What became of it" value={call.status ?? ""}
          options={[["", "as the output says"], ["ok", "ok"], ["empty", "empty"],
            ["error", "it failed"], ["unknown", "not known"]]}
          set={(value) => put("status", value || undefined)} />
      </details>
    </li>
  );
}

/** Of which earlier calls, by number, which parts of the output a predicted call uses. */
export function pathsInOutputs(call: Predicted | null): Map<string, string[]> {
  const used = new Map<string, string[]>();
  const sources = [...Object.values(call?.sources ?? {}), ...Object.values(call?.contains ?? {})];
  for (const source of sources.flat()) {
    if (source.kind !== "output" || !source.call) continue;
    used.set(source.call, [...(used.get(source.call) ?? []), source.path ?? ""]);
  }
  return used;
}

function describe(source: Source, calls: Made[]): string {
  const made = source.call ? calls[Number(source.call) - 1] : undefined;
  const call = made ? `call ${source.call} (${made.tool})` : `call ${source.call}`;
  switch (source.kind) {
    case "query": return "the query";
    case "message": return "an earlier message";
    case "output": return `the output of ${call}${source.path ? `, ${source.path}` : ""}`;
    case "argument": return `argument ${source.path} of ${call}`;
    case "constant": return "earlier runs";
    case "omitted": return "left out";
    default: return "not known";
  }
}

/** The query with the parts marked that arguments come from. */
function MarkedQuery({ query, of }: { query: string; of: Predicted }) {
  const letters = [...query]; // spans count characters, as Python does
  const spans = Object.entries(of.sources)
    .flatMap(([name, sources]) => sources.map((source) => ({ name, source })))
    .filter(({ source }) => source.kind === "query" && source.span?.length === 2)
    .map(({ name, source }) => ({ name, from: source.span![0]!, to: source.span![1]! }))
    .sort((one, two) => one.from - two.from);
  const parts = [];
  let done = 0;
  for (const span of spans) {
    if (span.from < done) continue;
    parts.push(letters.slice(done, span.from).join(""));
    parts.push(<mark key={span.from} title={`argument ${span.name}`}>
      {letters.slice(span.from, span.to).join("")}</mark>);
    done = span.to;
  }
  if (!parts.length) return null;
  return <p class="query" dir="auto">{parts}{letters.slice(done).join("")}</p>;
}

/** The chosen tool as a whole call: each argument, how probable it is, and its source. */
export function Prediction({ of, query, calls }: { of: Predicted; query: string; calls: Made[] }) {
  const names = Object.keys(of.arguments);
  const unknown = of.unknown ?? [];
  if (!names.length && !unknown.length) return null;
  return (
    <section class="cost" aria-label="Predicted call">
      <h3>As a call: <Name of={of.tool} /></h3>
      <MarkedQuery query={query} of={of} />
      <Scroll label="Arguments">
        <table>
          <thead><tr><th>Argument</th><th>Value</th><th>From</th><th class="num">Probable</th></tr>
          </thead>
          <tbody>
            {names.map((name) => (
              <tr key={name}>
                <td><Name of={name} /></td>
                <td><bdi>{JSON.stringify(of.arguments[name])}</bdi></td>
                <td><bdi>{[...new Set((of.sources[name] ?? []).map((source) =>
                  describe(source, calls)))].join("; ")}</bdi></td>
                <td class="num">{percent(of.probabilities?.[name] ?? 0)}</td>
              </tr>
            ))}
            {unknown.map((name) => (
              <tr key={name}>
                <td><Name of={name} /></td>
                <td>?</td>
                <td><bdi>{["has to be written", ...(of.contains?.[name] ?? []).map((source) =>
                  describe(source, calls))].join(", with ")}</bdi></td>
                <td />
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </section>
  );
}
