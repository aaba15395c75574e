// A run step by step: the ranking live, calls accepted and taken back, two forks side by side.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { post, usePolled, usePost, useRanking } from "./api";
import type { Made, Ranking, Schemas, Step } from "./api";
import { CallLine, Prediction, pathsInOutputs } from "./call";
import { CAUSES } from "./misses";
import {
  about, address, count, forks, go, model, param, percent, place, query, runChanges, setCalls,
  setQuery, side, step, writeCalls,
} from "./state";
import { Bar, Field, ModelLine, Name, Scoring, Scroll, Select, Waiting } from "./widgets";

const FEW = 12;
const MANY = 60;

/** The policy of the address, as the server takes it. */
function policy(): Partial<Schemas["MaskPolicy"]> {
  const value = Number(param("bound"));
  const bounds: Record<string, Partial<Schemas["MaskPolicy"]>> = {
    top_k: { top_k: Math.max(1, Math.round(value) || 5) },
    coverage: { coverage: Math.min(0.999, Math.max(0.001, value / 100 || 0.95)) },
    token_budget: { token_budget: Math.max(1, Math.round(value) || 500) },
  };
  const sticky = param("sticky") as Schemas["MaskPolicy"]["sticky"];
  return { ...bounds[param("rule")], ...(sticky ? { sticky } : {}) };
}

function PolicyForm() {
  const rule = param("rule");
  const usual: Record<string, string> = { top_k: "5", coverage: "95", token_budget: "500" };
  const set = (changes: Record<string, string | null>) => go(place.value.view, changes, true);
  return (
    <div class="row">
      <Select
        label="Show the LLM"
        value={rule}
        options={[["", "by the default rule"], ["top_k", "the first k"],
          ["coverage", "a share of right tools (%)"], ["token_budget", "what fits (tokens)"]]}
        set={(value) => set({ rule: value, bound: usual[value] ?? null })}
      />
      {rule && (
        <Field label={rule === "coverage" ? "Per cent" : rule === "top_k" ? "k" : "Tokens"}>
          <input type="number" min="1" value={param("bound")}
            onInput={(event) => set({ bound: event.currentTarget.value })} />
        </Field>
      )}
      <Select
        label="Within a run"
        value={param("sticky")}
        options={[["", "follow each ranking"], ["grow", "only add tools"],
          ["confidence", "change when surer"]]}
        set={(value) => set({ sticky: value })}
      />
    </div>
  );
}

function Trace({ of, at, call }: { of: Step; at: number; call: Schemas["CallPrediction"] | null }) {
  const used = pathsInOutputs(call);
  const change = (number: number) => (call: Made | null) =>
    setCalls(of.calls.map((item, place) => (place === number && call ? call : item)), at);
  if (!of.calls.length) return <p class="muted">No call yet: choose the first one.</p>;
  return (
    <ol class="trace" aria-label="Calls so far">
      {of.calls.map((call, number) => (
        <CallLine key={`${number} ${call.tool}`} call={call} change={change(number)}
          used={used.get(String(number + 1)) ?? []} />
      ))}
    </ol>
  );
}

function Sureness({ ranking }: { ranking: Ranking }) {
  return (
    <p class="facts">
      <span>Confidence <b>{percent(ranking.confidence)}</b></span>
      <span>
        Query{" "}
        {ranking.familiar ? <b>like the demonstrations</b> : (
          <b class="bad">unlike the demonstrations</b>
        )}
      </span>
      {ranking.unknown_tools.length > 0 && (
        <span class="bad">Never seen: <bdi>{ranking.unknown_tools.join(", ")}</bdi></span>
      )}
    </p>
  );
}

interface ListProps {
  ranking: Ranking;
  shown: Map<string, Schemas["ShownTool"]> | null;
  chosen: number;
  choose: (at: number) => void;
  accept: (tool: string) => void;
  recorded: string | undefined;
  at: number;
}

/** The tools as bars, best first. */
function RankingList(props: ListProps) {
  const { ranking, shown, chosen, at } = props;
  const list = useRef<HTMLUListElement>(null);
  useEffect(() => {
    if (chosen > 0) list.current?.children[chosen]?.scrollIntoView({ block: "nearest" });
  }, [chosen]);
  return (
    <ul class="ranking" role="listbox" tabIndex={0} ref={list} aria-label="Next tools, best first"
      aria-activedescendant={`tool-${at}-${chosen}`}>
      {ranking.tools.map((item, number) => {
        const isHidden = shown !== null && item.tool !== "end" && !shown.has(item.tool);
        const marks = [
          item.tool === props.recorded ? "recorded" : "",
          isHidden ? "hidden" : "",
          shown?.get(item.tool) && shown.get(item.tool)?.reason !== "ranked"
            ? shown.get(item.tool)?.reason : "",
        ].filter(Boolean);
        return (
          <li key={item.tool} id={`tool-${at}-${number}`} role="option"
            aria-selected={number === chosen} class={isHidden ? "is-hidden" : ""}
            onClick={() => props.choose(number)} onDblClick={() => props.accept(item.tool)}>
            <span class="top">
              {item.tool === "end" ? <i>end of plan</i> : <Name of={item.tool} />}
              <small>{marks.join(", ")}</small>
              <span class="value">{percent(item.probability)}</span>
            </span>
            <Bar share={item.probability} kind={item.tool === "end" ? "end" : ""} />
          </li>
        );
      })}
    </ul>
  );
}

const asked = (of: Step) =>
  ({ query: of.query, before: of.before, history: of.calls, model: of.model });

function Fork({ of, at, recorded }: { of: Step; at: number; recorded: Made[] }) {
  const [size, setSize] = useState(FEW);
  const [chosen, setChosen] = useState(0);
  const isActive = side.value === at;
  const isCompared = forks.value.length > 1;
  const answer = useRanking(of, size);
  const ranking = answer.data;
  const question = of.query.trim() && isActive
    ? { ...asked(of), policy: policy() } : null;
  const shown = usePost("/v1/studio/shown", question);
  const isSame = of.calls.every((call, number) => call.tool === recorded[number]?.tool);
  const next = isSame ? recorded[of.calls.length] : undefined;
  const nextTool = isSame && recorded.length ? (next?.tool ?? "end") : undefined;
  useLayoutEffect(() => setChosen(0), [ranking?.tools[0]?.tool, of.calls.length]);

  const tool = ranking?.tools[Math.min(chosen, ranking.tools.length - 1)]?.tool;
  const predicts = about.value?.models.find((item) => item.name === of.model)?.has_arguments;
  const calls = usePost("/v1/calls", question && predicts && tool && tool !== "end"
    ? { ...asked(of), tool } : null);
  const predicted = calls.data?.calls.find((item) => item.tool === tool) ?? null;

  const accept = (name: string) => {
    if (name === "end") return;
    const known = !calls.loading && predicted?.tool === name
      && Object.keys(predicted.arguments).length ? { arguments: predicted.arguments } : {};
    setCalls([...of.calls, name === next?.tool ? next : { tool: name, ...known }], at);
  };
  const undo = () => setCalls(of.calls.slice(0, -1), at);
  const fork = () => go("run", { fork: JSON.stringify(of.calls), side: "2" });
  const why = address("why", { tool: tool ?? null, against: null });

  // Keys act on the calls that the page shows: an effect after painting would leave the last
  // step's calls to a quick key.
  useLayoutEffect(() => {
    if (!isActive) return;
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (target.closest("input, textarea, select, summary, [contenteditable]")) {
        if (event.key === "Escape") target.blur();
        return;
      }
      const isOnControl = target.closest("a, button") !== null;
      const most = (ranking?.tools.length ?? 1) - 1;
      const keys: Record<string, () => void> = {
        ArrowDown: () => setChosen(Math.min(most, chosen + 1)),
        ArrowUp: () => setChosen(Math.max(0, chosen - 1)),
        Home: () => setChosen(0),
        End: () => setChosen(most),
        u: undo,
        f: fork,
        w: () => (location.hash = why),
        ...(isCompared ? { c: () => go("run", { side: at === 0 ? "2" : null }) } : {}),
        ...(!isOnControl && tool ? { Enter: () => accept(tool) } : {}),
      };
      const act = keys[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  });

  const head = isCompared ? `Fork ${at + 1}` : "Next tool";
  return (
    <section class={`panel fork ${isActive ? "is-active" : ""}`} aria-label={head}>
      <h2>
        {isCompared && !isActive ? (
          <button class="quiet" onClick={() => go("run", { side: at ? "2" : null })}>
            {head}: go on here
          </button>
        ) : head}
      </h2>
      <Trace of={of} at={at} call={predicted} />
      <div class="actions">
        <button disabled={!tool || tool === "end"} onClick={() => tool && accept(tool)}>
          Accept <kbd>Enter</kbd>
        </button>
        <button disabled={!of.calls.length} onClick={undo}>Undo <kbd>u</kbd></button>
        {!isCompared && <button disabled={!tool} onClick={fork}>Fork <kbd>f</kbd></button>}
        {isCompared && (
          <button onClick={() => go("run", {
            calls: at ? param("fork") : param("calls"), fork: null, side: null,
          })}>Keep this fork alone</button>
        )}
        {isActive && tool && <a class="button" href={why}>Why <kbd>w</kbd></a>}
        {next && <button onClick={() => accept(next.tool)}>
          Take the recorded call
        </button>}
      </div>
      {ranking ? (
        <>
          <Sureness ranking={ranking} />
          <RankingList ranking={ranking} chosen={isActive ? chosen : -1} choose={setChosen}
            accept={accept} recorded={nextTool} at={at}
            shown={shown.data ? new Map(shown.data.shown.map((item) => [item.tool, item])) : null} />
          {size === FEW && ranking.tools.length === FEW && (
            <button class="quiet" onClick={() => setSize(MANY)}>More tools</button>
          )}
        </>
      ) : of.query.trim() ? <Waiting answer={answer} /> : (
        <p class="empty">Type what a user might ask for, and see which tool comes next.</p>
      )}
      {predicted && <Prediction of={predicted} query={of.query} calls={of.calls} />}
      {isActive && of.query.trim() && <Cost answer={shown.data} />}
      {shown.error && ranking && <p class="error" role="alert">{shown.error}</p>}
    </section>
  );
}

const changed = (number: number): string =>
  number === 0 ? "never changed" : `changed ${number === 1 ? "once" : `${number} times`}`;

function Cost({ answer }: { answer: Schemas["ShownResponse"] | null }) {
  const total = answer ? answer.shown.length + answer.hidden : 0;
  return (
    <div class="cost">
      <PolicyForm />
      {answer && (
        <p class="facts">
          <span><b>{count(answer.shown.length)}</b> of {count(total)} tools are shown</span>
          <span>
            about <b>{count(answer.tokens)}</b> of {count(answer.all_tokens)} tokens at this step
          </span>
          <span>
            {count(answer.steps.reduce((sum, item) => sum + item.tokens, 0))} in{" "}
            {answer.steps.length === 1 ? "one step" : `${answer.steps.length} steps`}, the set{" "}
            {changed(answer.steps.filter((item) => item.changed).length)}
          </span>
        </p>
      )}
    </div>
  );
}

/** Where the two forks differ: how probable each tool is in the one and in the other. */
function Difference() {
  const [one, two] = forks.value as [Step, Step];
  const rankings = [useRanking(one, MANY).data, useRanking(two, MANY).data];
  if (!rankings[0] || !rankings[1]) return null;
  const values = rankings.map((item) =>
    new Map(item?.tools.map((tool) => [tool.tool, tool.probability])));
  const names = [...new Set(values.flatMap((item) => [...item.keys()]))];
  const value = (at: number, name: string) => values[at]?.get(name) ?? 0;
  const rows = names
    .map((name) => ({ name, change: value(1, name) - value(0, name) }))
    .sort((left, right) => Math.abs(right.change) - Math.abs(left.change))
    .slice(0, 8)
    .filter((row) => Math.abs(row.change) >= 0.0005);
  return (
    <section class="panel" aria-label="What the forks differ in">
      <h2>What changes</h2>
      {rows.length ? (
        <Scroll label="Forks"><table>
          <thead><tr><th>Tool</th><th class="num">Fork 1</th><th class="num">Fork 2</th>
            <th class="num">Change</th></tr></thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row.name}>
                <td><Name of={row.name} /></td>
                <td class="num">{percent(value(0, row.name))}</td>
                <td class="num">{percent(value(1, row.name))}</td>
                <td class="num">{row.change > 0 ? "+" : "−"}{percent(Math.abs(row.change))}</td>
              </tr>
            ))}
          </tbody>
        </table></Scroll>
      ) : <p class="empty">Both forks rank alike. Accept another tool in one of them.</p>}
    </section>
  );
}

/** What the run called at each step, and what the model predicted there. */
function Recorded({ of, calls }: { of: Schemas["RunResponse"]; calls: Made[] }) {
  if (of.scoring) return <Scoring text={of.scoring} />;
  const at = (number: number) => ({ calls: writeCalls(knownBefore(calls, number)), fork: null });
  return (
    <Scroll label="Called and predicted"><table>
      <thead><tr><th>Called</th><th>Predicted</th>
        <th class="num wide">Probability of it</th><th class="num">Rank of the called</th><th class="wide">Output</th><th>Look</th></tr></thead>
      <tbody>
        {of.steps.map((item, number) => (
          <tr key={number}>
            <td><Name of={item.called} /></td>
            <td class={item.rank === 1 ? "" : "bad"}>
              <Name of={item.predicted} />
              {item.rank !== 1 && <><br /><small>{CAUSES[item.cause] ?? item.cause}</small></>}
            </td>
            <td class="num wide">{percent(item.probability)}</td>
            <td class="num">{item.rank ?? "not known"}</td>
            <td class="wide"><Name of={outputOf(calls[number])} /></td>
            <td>
              <a href={address("run", at(number))}>open</a>{" "}
              <a href={address("why", { ...at(number), tool: item.predicted,
                against: item.called === item.predicted ? null : item.called })}>why</a>
            </td>
          </tr>
        ))}
      </tbody>
    </table></Scroll>
  );
}

/** The first calls as the agent knew them: of calls made together, none had returned. */
function knownBefore(calls: Made[], done: number): Made[] {
  const together = calls[done]?.step;
  return calls.slice(0, done).map((call) => {
    if (typeof together !== "number" || call.step !== together) return call;
    const { output, status, ...known } = call;
    return known as Made;
  });
}

const outputOf = (call: Made | undefined): string => {
  const output = call?.output;
  if (output === undefined || output === null) return "";
  return (typeof output === "string" ? output : JSON.stringify(output)).slice(0, 200);
};

function Learn({ of }: { of: Step }) {
  const [said, setSaid] = useState("");
  if (!about.value?.may_learn || !of.calls.length) return null;
  const teach = async () => {
    const calls = of.calls.map((call, number) => ({
      ...call, id: String(number + 1), status: call.status ?? "unknown",
    }));
    const body = { model: of.model, demonstrations: [{ query: of.query, before: of.before, calls }] };
    await post("/v1/feedback", body).then(
      (answer) => setSaid(answer.logged
        ? "Logged; dtdr learn will learn it."
        : "The model is learning it; rankings change when it is done."),
      (error: Error) => setSaid(error.message),
    );
  };
  return (
    <p class="facts">
      <button onClick={teach}>Teach the model this run</button>
      <span role="status">{said}</span>
    </p>
  );
}

export function RunView() {
  const opened = param("run");
  const record = usePolled("/v1/studio/run",
    opened ? { position: Number(opened), model: model.value } : null);
  const recorded = (record.data?.calls ?? []).map(({ id, ...call }: any) => {
    if (!Object.keys(call.arguments ?? {}).length) delete call.arguments;
    return call as Made;
  });
  const isNew = record.data && String(record.data.position) === opened && !query.value;
  useEffect(() => {
    if (isNew && record.data) {
      const { query: text, before } = record.data;
      const calls = knownBefore(recorded, Number(param("at")) || 0);
      go("run", { ...runChanges(text, calls, before), run: opened, at: null }, true);
    }
  }, [isNew]);
  const forked = forks.value;
  return (
    <div class="run-view">
      <section class="panel" aria-label="Query">
        <h1>Run <ModelLine /></h1>
        <Field label="What the user asked for">
          <textarea id="query" rows={3} value={query.value} autofocus={!param("q") && !param("run")}
            onInput={(event) => setQuery(event.currentTarget.value)} />
        </Field>
        {step.value.before.length > 0 && (
          <p class="muted">After {step.value.before.length} earlier messages and calls.</p>
        )}
        {record.error && <p class="error" role="alert">{record.error}</p>}
        {!!about.value?.runs && (
          <p><a href={address("runs")}>Open one of {count(about.value.runs)} runs</a></p>
        )}
        <p class="facts">
          <button class="quiet" onClick={() => go("run", { ...runChanges("", []), run: null })}>
            Start again
          </button>
        </p>
        <Learn of={step.value} />
        <p class="muted keys">
          <kbd>↑</kbd> <kbd>↓</kbd> choose, <kbd>Enter</kbd> accept, <kbd>u</kbd> undo,{" "}
          <kbd>f</kbd> fork, <kbd>w</kbd> why, <kbd>Esc</kbd> leave a field
        </p>
      </section>
      {record.data && opened && (
        <section class="panel" aria-label="Called and predicted">
          <h2>Called and predicted</h2>
          <Recorded of={record.data} calls={recorded} />
        </section>
      )}
      <div class={forked.length > 1 ? "two" : "one"}>
        {forked.map((item, at) => <Fork key={at} of={item} at={at} recorded={recorded} />)}
      </div>
      {forked.length > 1 && <Difference />}
    </div>
  );
}
