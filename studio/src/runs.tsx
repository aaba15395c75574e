// All runs, a page at a time: filtered, sorted, and how well each was predicted.
import { usePolled } from "./api";
import { about, count, go, model, param } from "./state";
import { Field, ModelLine, RunFilters, RunLink, Scoring, Scroll, Select, Waiting, isFiltered, listFilter }
  from "./widgets";

const PAGE = 50;

export function RunsView() {
  const offset = Math.max(0, Number(param("from")) || 0);
  const sort = (param("sort") || "file") as "file" | "rank" | "calls" | "time";
  const misses = !!param("misses");
  const answer = usePolled("/v1/studio/runs", {
    filter: listFilter(), offset, limit: PAGE, sort, misses, model: model.value,
  });
  const of = answer.data;
  const set = (changes: Record<string, string | null>) =>
    go("runs", { from: null, ...changes }, true);
  const total = of?.total ?? 0;
  const isDated = !!(param("since") || param("until"));
  const hasTimes = isDated || of?.runs.some((run) => run.time);
  return (
    <section class="panel" aria-label="Runs">
      <h1>Runs <ModelLine /></h1>
      {!about.value?.runs && (
        <p class="note">These are the plans that the model kept, without queries. Start the studio
          with <code>--data FILE</code> to see runs and how they are predicted.</p>
      )}
      <details class="filters" open={innerWidth > 600}>
        <summary>Filters</summary>
        <div class="row">
          <RunFilters view="runs" />
          <Field label="Calls the tool">
            <input type="search" value={param("calls_tool")}
              onInput={(event) => set({ calls_tool: event.currentTarget.value })} />
          </Field>
          {hasTimes && ["since", "until"].map((name) => (
            <Field key={name} label={name === "since" ? "From" : "To"}>
              <input type="date" value={param(name)}
                onChange={(event) => set({ [name]: event.currentTarget.value })} />
            </Field>
          ))}
          <Select label="Sort by" value={sort} set={(value) => set({ sort: value })}
            options={[["file", "place in the file"], ["rank", "lowest rank"], ["calls", "calls"],
              ["time", "time, latest first"]]} />
          <label class="check">
            <input type="checkbox" checked={misses}
              onChange={(event) => set({ misses: event.currentTarget.checked ? "1" : null })} />
            Only runs with a miss
          </label>
        </div>
      </details>
      {of?.scoring && about.value?.runs ? <Scoring text={of.scoring} /> : null}
      {!of ? <Waiting answer={answer} /> : !total ? (
        <p class="empty">
          {misses && !of.scoring ? "No run of these has a miss. Change the filter."
            : isFiltered() || param("calls_tool") || isDated || misses ? "No run matches. Change the filter."
              : "There is no run."}
        </p>
      ) : (
        <>
          <Scroll label="Runs"><table class="runs-table">
            <thead><tr><th>Run</th>{hasTimes && <th class="wide">Time</th>}
              <th class="num wide">Calls</th><th class="wide">Outcome</th><th class="num">Right</th><th class="num">Lowest rank</th></tr></thead>
            <tbody>
              {of.runs.map((run) => (
                <tr key={run.position}>
                  <td><RunLink run={run} /></td>
                  {hasTimes && <td class="wide">{run.time?.slice(0, 16).replace("T", " ")}</td>}
                  <td class="num wide">{count(run.calls)}</td>
                  <td class="wide">{run.outcome === "failure" ? <b class="bad">failed</b> : ""}</td>
                  <td class="num">{run.score ? `${run.score.right} of ${run.score.steps}` : "–"}</td>
                  <td class="num">{run.score ? run.score.lowest ?? "not known" : "–"}</td>
                </tr>
              ))}
            </tbody>
          </table></Scroll>
          <p class="actions">
            <button disabled={!offset}
              onClick={() => go("runs", { from: String(Math.max(0, offset - PAGE)) })}>Back</button>
            <button disabled={offset + PAGE >= total}
              onClick={() => go("runs", { from: String(offset + PAGE) })}>Next</button>
            <span class="muted" role="status">
              {count(offset + 1)} to {count(Math.min(offset + PAGE, total))} of {count(total)} runs
            </span>
          </p>
        </>
      )}
    </section>
  );
}
