// Why a tool: what each block adds against the next best, similar demonstrations.
import { usePost } from "./api";
import type { Schemas } from "./api";
import { about, address, go, model, param, percent, runChanges, step } from "./state";
import { Name, Select, Waiting } from "./widgets";

type Explanation = Schemas["Explanation"];

function Contributions({ of }: { of: Explanation }) {
  if (!of.contributions?.length) return null;
  const rows = [...of.contributions].sort((one, two) => Math.abs(two.adds) - Math.abs(one.adds));
  const most = Math.max(...rows.map((row) => Math.abs(row.adds)), 1e-9);
  const signed = (value: number) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
  return (
    <section class="panel" aria-label="Contributions">
      <h2>What each block adds</h2>
      <div class="scroll" tabIndex={0} role="group" aria-label="Blocks">
        <table class="why">
          <thead>
            <tr><th>Block</th><th>Against <Name of={of.rival} /></th><th class="num">Adds</th>
              <th class="num">Without it</th><th>Best then</th></tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row.block}>
                <td>{row.block}<br /><small class="muted">{row.about}</small></td>
                <td>
                  <span class="diverging" aria-hidden="true">
                    <span class={row.adds < 0 ? "minus" : "plus"}
                      style={{ width: `${(Math.abs(row.adds) / most) * 50}%` }} />
                  </span>
                </td>
                <td class="num">{signed(row.adds)}</td>
                <td class="num">{percent(row.probability_without)}</td>
                <td><Name of={row.best_without} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="muted">
        Above 0, the block is for this tool; below 0, for the other one. 0.7 doubles the odds. What
        two blocks know, neither adds. “Without it”: the step ranked again without the block.
      </p>
    </section>
  );
}

/** A similar demonstration; with its query where the file of runs holds it at that place. */
function Similar({ of }: { of: Schemas["SimilarDemonstration"] }) {
  const isThere = of.position < (about.value?.runs ?? 0);
  const run = usePost("/v1/studio/run",
    isThere ? { position: of.position, model: model.value } : null).data;
  const tools = of.tools;
  const isIt = run && JSON.stringify(run.calls.map((call) => call.tool)) === JSON.stringify(tools);
  return (
    <tr>
      <td class="num">{of.similarity.toFixed(2)}</td>
      <td>
        {isIt ? (
          <a href={address("run", { ...runChanges("", []), run: String(of.position) })}>
            <bdi>{run.query}</bdi>
          </a>
        ) : `Demonstration ${of.position + 1}`}
        <br /><small class="muted"><bdi>{tools.join(" → ")}</bdi></small>
      </td>
      <td><small><bdi>{of.terms.join(", ")}</bdi></small></td>
    </tr>
  );
}

export function WhyView() {
  const now = step.value;
  const question = now.query.trim()
    ? {
        query: now.query, before: now.before, history: now.calls, model: now.model,
        tool: param("tool") || null, against: param("against") || null,
      }
    : null;
  const answer = usePost("/v1/explain", question);
  const ranked = usePost("/v1/rank", question && ({
    query: now.query, before: now.before, history: now.calls, model: now.model, top_k: 60,
  }));
  const of = answer.data?.explanation;
  const names = ranked.data?.tools.map((item) => item.tool) ?? [];
  const options = (chosen: string, first: string): [string, string][] => [
    ["", first],
    ...[...new Set([...(chosen ? [chosen] : []), ...names])].map((name): [string, string] =>
      [name, name]),
  ];
  return (
    <>
      <section class="panel" aria-label="Step">
        <h1>Why</h1>
        <p class="query"><bdi>{now.query || "No query yet."}</bdi></p>
        <p class="muted">
          {now.calls.length ? <bdi>after {now.calls.map((call) => call.tool).join(" → ")}</bdi>
            : "before the first call"} · <a href={address("run")}>back to the run</a>
        </p>
        <div class="row">
          <Select label="Tool" value={param("tool")} options={options(param("tool"), "the best")}
            set={(value) => go("why", { tool: value })} />
          <Select label="Against" value={param("against")}
            options={options(param("against"), "the best other")}
            set={(value) => go("why", { against: value })} />
        </div>
        {of && (
          <p class="verdict">
            <Name of={of.tool} /> is at place <b>{of.rank}</b> with{" "}
            <b>{percent(of.probability)}</b>; <Name of={of.rival} /> has{" "}
            <b>{percent(of.rival_probability)}</b>.
          </p>
        )}
        {of?.note && <p class="note">{of.note}</p>}
        {!question && <p class="empty">Type a query in the run view first.</p>}
        {question && !of && <Waiting answer={answer} />}
      </section>
      {of && <Contributions of={of} />}
      {!!of?.similar?.length && (
        <section class="panel" aria-label="Similar demonstrations">
          <h2>The most similar demonstrations</h2>
          <div class="scroll similar">
            <table>
              <thead><tr><th class="num">Similarity</th><th>Run</th><th>Same words</th></tr></thead>
              <tbody>{of.similar.map((item) => <Similar key={item.position} of={item} />)}</tbody>
            </table>
          </div>
        </section>
      )}
    </>
  );
}
