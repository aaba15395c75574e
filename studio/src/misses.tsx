// Where the model is wrong: causes, confused tools, rules of the agent, and the most confident
// wrong steps.
import { usePolled } from "./api";
import type { Schemas } from "./api";
import { address, count, model, percent, runChanges } from "./state";
import { Bar, ModelLine, Name, Scoring, Scroll, Waiting } from "./widgets";

const METRICS: Record<string, string> = {
  mrr: "MRR", top1: "Top-1", "recall@5": "Recall@5", log_top1: "Log top-1",
};

export const CAUSES: Record<string, string> = {
  right: "right", never_called: "no run to learn from calls the tool",
  ended_early: "the model ends early", end_missed: "the model misses the end",
  comes_later: "the tool comes later in the run", repeated: "the tool was called before",
  other: "another tool",
};

/** A recorded run after its first calls, opened to go on. */
const openAt = (position: number, done: number): string =>
  address("run", { ...runChanges("", []), run: String(position), at: String(done) });

function Causes({ of, steps }: { of: Record<string, number>; steps: number }) {
  const missed = Object.entries(of).filter(([cause]) => cause !== "right");
  return (
    <section class="panel" aria-label="Causes">
      <h2>Why the log's next call was not first</h2>
      {missed.length ? (
        <ul class="bars">
          {missed.sort((one, two) => two[1] - one[1]).map(([cause, number]) => (
            <li key={cause}>
              <span class="top">
                <span>{CAUSES[cause] ?? cause}</span>
                <span class="value">{percent(number / steps)} <small>({count(number)})</small></span>
              </span>
              <Bar share={number / steps} />
            </li>
          ))}
        </ul>
      ) : <p class="empty">The model puts each next call first.</p>}
    </section>
  );
}

function Confused({ of }: { of: Schemas["Confusion"][] }) {
  return (
    <section class="panel" aria-label="Confused tools">
      <h2>Confused tools</h2>
      {of.length ? (
        <Scroll label="Confused tools"><table>
          <thead><tr><th>Predicted</th><th>Called</th><th class="num">Steps</th></tr></thead>
          <tbody>
            {of.map((item) => (
              <tr key={`${item.predicted}\n${item.called}`}>
                <td><Name of={item.predicted} /></td><td><Name of={item.called} /></td>
                <td class="num">{count(item.count)}</td>
              </tr>
            ))}
          </tbody>
        </table></Scroll>
      ) : <p class="empty">None.</p>}
    </section>
  );
}

function Branches({ of }: { of: Schemas["Branch"][] }) {
  return (
    <section class="panel" aria-label="Branches">
      <h2>Where the agent branches</h2>
      {of.length ? (
        <>
          <p class="muted">
            Conditions on outputs that decide the next tool, those that the model misses most first.
          </p>
          <Scroll label="Branches"><table>
            <thead><tr><th>If</th><th>The agent calls</th><th class="num">Agent</th>
              <th class="num">Ranked first</th><th class="num">Otherwise</th></tr></thead>
            <tbody>
              {of.map((item) => (
                <tr key={item.tool}>
                  <td><bdi>{item.condition}</bdi></td><td><Name of={item.tool} /></td>
                  <td class="num">{count(item.agent)} of {count(item.cases)}</td>
                  <td class="num">{count(item.model)} of {count(item.agent)}</td>
                  <td class="num">{count(item.agent_otherwise)} of {count(item.other_cases)}</td>
                </tr>
              ))}
            </tbody>
          </table></Scroll>
        </>
      ) : <p class="empty">No value of an output says which tool comes next in enough of these runs.</p>}
    </section>
  );
}

export function MissesView() {
  const answer = usePolled("/v1/studio/misses", { model: model.value });
  const of = answer.data;
  return (
    <>
      <section class="panel" aria-label="Misses">
        <h1>Misses <ModelLine /></h1>
        {!of ? <Waiting answer={answer} /> : of.scoring ? <Scoring text={of.scoring} /> : (
          <p class="facts">
            <span><b>{count(of.steps)}</b> steps of <b>{count(of.runs)}</b> runs that did not fail</span>
            {Object.entries(of.metrics).map(([name, value]) => (
              <span key={name}>{METRICS[name] ?? name} <b>{value.toFixed(3)}</b></span>
            ))}
          </p>
        )}
        {of && !of.scoring && (
          <p class="muted">
            The figures are those of <code>dtdr evaluate --model</code>. They are too good if the
            model learned from these runs.
          </p>
        )}
      </section>
      {of && !of.scoring && (
        <>
          <div class="two">
            <Causes of={of.causes} steps={of.steps} />
            <Confused of={of.confusions} />
          </div>
          <Branches of={of.branches} />
          <section class="panel" aria-label="The most confident mistakes">
            <h2>The most confident mistakes</h2>
            {of.mistakes.length ? (
              <Scroll label="Mistakes"><table>
                <thead><tr><th>Query</th><th>Last call</th><th>Predicted</th>
                  <th class="num">Probability</th><th>Called</th></tr></thead>
                <tbody>
                  {of.mistakes.map((item, at) => (
                    <tr key={`${item.id} ${item.history.length}`}>
                      <td>
                        <a href={openAt(of.positions[at]!, item.history.length)}>
                          <bdi>{item.query || `Run ${of.positions[at]! + 1}`}</bdi>
                        </a>
                      </td>
                      <td><Name of={item.history[item.history.length - 1] ?? "–"} /></td>
                      <td><Name of={item.predicted} /></td>
                      <td class="num">{percent(item.probability)}</td>
                      <td><Name of={item.called} /></td>
                    </tr>
                  ))}
                </tbody>
              </table></Scroll>
            ) : <p class="empty">At every step, the best tool is right.</p>}
          </section>
        </>
      )}
    </>
  );
}
