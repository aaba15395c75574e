// Why a tool: the evidence in the run against the next best tool, similar demonstrations.
import { usePost } from "./api";
import type { Schemas } from "./api";
import { about, address, go, model, param, percent, runChanges, step } from "./state";
import { Name, Scroll, Select, Waiting } from "./widgets";

type Explanation = Schemas["Explanation"];

/** What of the run speaks for the tool and against it, as dtdr rank --why names it. */
function EvidenceTable({ of }: { of: Explanation }) {
  const rows = of.evidence ?? [];
  if (!rows.length) return null;
  const most = Math.max(...rows.map((row) => Math.abs(row.adds)), 1e-9);
  const signed = (value: number) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
  return (
    <section class="panel" aria-label="Evidence">
      <h2>What speaks for it</h2>
      <Scroll label="Evidence">
        <table class="why">
          <thead>
            <tr><th>In the run</th><th>Against <Name of={of.rival} /></th>
              <th class="num">Adds</th></tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row.text}>
                <td><bdi>{row.text}</bdi></td>
                <td>
                  <span class="diverging" aria-hidden="true">
                    <span class={row.adds < 0 ? "minus" : "plus"}
                      style={{ width: `${(Math.abs(row.adds) / most) * 50}%` }} />
                  </span>
                </td>
                <td class="num">{signed(row.adds)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      <p class="muted">
        The step is ranked again without each word, call and value. Above 0, it speaks for this
        tool; below 0, for the other one. 0.7 doubles the odds.
      </p>
    </section>
  );
}

/** A similar demonstration; with its query where the file of runs has it. */
function Similar({ of }: { of: Schemas["SimilarDemonstration"] }) {
  const run = usePost("/v1/studio/run",
    about.value?.runs ? { id: of.id, model: model.value } : null).data;
  return (
    <tr>
      <td class="num">{of.similarity.toFixed(2)}</td>
      <td>
        {run ? (
          <a href={address("run", { ...runChanges("", []), run: String(run.position) })}>
            <bdi>{run.query}</bdi>
          </a>
        ) : <bdi>{of.id}</bdi>}
        <br /><small class="muted"><bdi>{of.tools.join(" → ")}</bdi></small>
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
      {of && <EvidenceTable of={of} />}
      {!!of?.similar?.length && (
        <section class="panel" aria-label="Similar demonstrations">
          <h2>The most similar demonstrations</h2>
          <Scroll label="Similar demonstrations" kind="similar">
            <table>
              <thead><tr><th class="num">Similarity</th><th>Run</th><th>Same words</th></tr></thead>
              <tbody>{of.similar.map((item) => <Similar key={item.id} of={item} />)}</tbody>
            </table>
          </Scroll>
        </section>
      )}
    </>
  );
}
