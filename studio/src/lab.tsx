// Labs: two runs side by side with their worst steps, and the report.
import { useState } from "preact/hooks";
import { usePost } from "./api";
import type { Schemas } from "./api";
import { about, address, count, go, param, percent, runChanges } from "./state";
import { Name, Select, Waiting } from "./widgets";

const NAMES: Record<string, string> = {
  mrr: "MRR", top1: "Top-1", f1: "F1", "recall@5": "Recall@5", log_mrr: "Log MRR",
};

const label = (run: Schemas["LabRun"]) =>
  `${run.method} · ${run.dataset}${run.split === "paper" ? "" : `, ${run.split}`}, seed ${run.seed}`;

function Sides({ of }: { of: Schemas["CompareResponse"] }) {
  const { first, second, difference } = of;
  const sides = second ? [first, second] : [first];
  return (
    <>
      <div class="scroll sides">
        <table>
          <thead><tr><th>Metric</th>{sides.map((_, at) => (
            <th class="num" key={at}>Run {at + 1}</th>))}</tr></thead>
          <tbody>
            {Object.keys(first.means).map((name) => (
              <tr key={name}><td>{NAMES[name] ?? name}</td>
                {sides.map((side, at) => {
                  const best = Math.max(...sides.map((item) => item.means[name] ?? 0));
                  const value = (side.means[name] ?? 0).toFixed(3);
                  const isBest = sides.length > 1 && value === best.toFixed(3);
                  return <td class="num" key={at}>{isBest ? <b>{value}</b> : value}</td>;
                })}
              </tr>
            ))}
            <tr><td>Steps</td>{sides.map((side, at) => <td class="num" key={at}>{count(side.steps)}</td>)}
            </tr>
          </tbody>
        </table>
      </div>
      {difference && (
        <p>Run 2 − run 1, MRR by plan: <b>{difference.difference.toFixed(4)}</b>, 95 % interval{" "}
          {difference.low.toFixed(4)} to {difference.high.toFixed(4)}, p ={" "}
          {difference.p_value.toFixed(4)} ({difference.plans} plans)</p>
      )}
      {of.reason && <p class="note">{of.reason}</p>}
    </>
  );
}

const WIDTH = 420, HEIGHT = 230, LEFT = 44, RIGHT = 12, TOP = 10, BOTTOM = 40;

/** One line a run: means from 0 to 1 over whole numbers, of which the ends are labelled. */
function Curves(props: { title: string; x: string; lines: [number, number, string][][] }) {
  const places = props.lines.flat().map(([x]) => x);
  const low = Math.min(...places), high = Math.max(...places, low + 1);
  const across = (x: number) => LEFT + (x - low) / (high - low) * (WIDTH - LEFT - RIGHT);
  const up = (y: number) => TOP + (1 - y) * (HEIGHT - TOP - BOTTOM);
  const every = Math.ceil((high - low + 1) / 10);
  const ticks = Array.from({ length: high - low + 1 }, (_, at) => low + at)
    .filter((x) => (x - low) % every === 0);
  const values = props.lines.map((line, at) =>
    `run ${at + 1}: ${line.map(([x, y]) => `${x}: ${y.toFixed(3)}`).join(", ")}`).join("; ");
  if (!places.length) return null;
  return (
    <figure class="curves">
      <figcaption>{props.title}</figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img"
        aria-label={`${props.title} by ${props.x}. ${values}`}>
        {[0, 0.25, 0.5, 0.75, 1].map((y) => (
          <g key={y}>
            <line class="grid" x1={LEFT} x2={WIDTH - RIGHT} y1={up(y)} y2={up(y)} />
            <text class="tick" x={LEFT - 6} y={up(y) + 4} text-anchor="end">{y}</text>
          </g>
        ))}
        {ticks.map((x) => (
          <text class="tick" key={x} x={across(x)} y={HEIGHT - BOTTOM + 16} text-anchor="middle">
            {x}</text>
        ))}
        <text class="tick" x={(LEFT + WIDTH - RIGHT) / 2} y={HEIGHT - 6} text-anchor="middle">
          {props.x}</text>
        {props.lines.map((line, at) => (
          <g key={at} class={`run-${at + 1}`}>
            <polyline points={line.map(([x, y]) => `${across(x)},${up(y)}`).join(" ")} />
            {line.map(([x, y, hover]) => (
              <g key={x}>
                {at ? <rect x={across(x) - 4} y={up(y) - 4} width="8" height="8" />
                  : <circle cx={across(x)} cy={up(y)} r="4" />}
                <title>{hover}</title>
              </g>
            ))}
          </g>
        ))}
      </svg>
    </figure>
  );
}

function Charts({ of }: { of: Schemas["CompareResponse"] }) {
  const sides = of.second ? [of.first, of.second] : [of.first];
  return (
    <section class="panel" aria-label="Charts">
      <h2>{sides.length > 1 ? "Side by side" : "In charts"}</h2>
      {sides.length > 1 && (
        <p class="legend">{sides.map((side, at) => (
          <span key={at}><i class={`run-mark run-${at + 1}`} /> Run {at + 1}:{" "}
            <bdi>{side.label}</bdi></span>
        ))}</p>
      )}
      <div class="two">
        <Curves title="Recall" x="tools shown" lines={sides.map((side, at) =>
          side.recall.map((value, place) => [place + 1, value,
            `Run ${at + 1}: ${value.toFixed(3)} with ${place + 1} shown`]))} />
        <Curves title="Right tool first (top-1)" x="calls before" lines={sides.map((side, at) =>
          side.by_step.map((one) => [one.calls, one.top1,
            `Run ${at + 1}: ${one.top1.toFixed(3)} at ${one.steps} steps`]))} />
      </div>
    </section>
  );
}

function Worst({ steps, isCompared }: { steps: Schemas["StepOfRun"][]; isCompared: boolean }) {
  return (
    <section class="panel" aria-label="Worst steps">
      <h2>{isCompared ? "Where run 2 loses most" : "The worst steps"}</h2>
      {steps.length ? (
        <div class="scroll steps">
          <table>
            <thead><tr><th>Step</th><th>Right</th><th class="num">Rank</th>
              {isCompared && <th class="num">Run 1</th>}<th>Ranked first</th></tr></thead>
            <tbody>
              {steps.map((step, at) => (
                <tr key={at}>
                  <td>
                    <a href={address("run", {
                      ...runChanges(step.query || step.plan, step.history.map((tool) => ({ tool }))),
                      run: null,
                    })}><bdi>{step.query || step.plan}</bdi></a>
                    <br /><small class="muted">
                      <bdi>{step.history.length ? `after ${step.history.join(" → ")}`
                        : "first call"}</bdi></small>
                  </td>
                  <td><bdi>{step.acceptable.join(", ")}</bdi></td>
                  <td class="num">{step.rank || "not ranked"}</td>
                  {isCompared && <td class="num">{step.other_rank ?? "–"}</td>}
                  <td>{step.best[0] && <><Name of={step.best[0].tool} />{" "}
                    <small>{percent(step.best[0].probability)}</small></>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : <p class="empty">Nothing to show.</p>}
    </section>
  );
}

function Report({ lab }: { lab: string }) {
  const [isOpen, setOpen] = useState(false);
  const answer = usePost("/v1/studio/lab/report", isOpen ? ({ lab }) : null);
  return (
    <details class="panel" onToggle={(event) => {
      if (event.target === event.currentTarget) setOpen(event.currentTarget.open);
    }}>
      <summary><h2>Report</h2></summary>
      {answer.data ? answer.data.sections.map((part) => (
        <section key={part.id}>
          <h3>{part.title}</h3>
          {part.blocks.map((block, at) => block.columns.length ? <ReportTable key={at} of={block} />
            : <p key={at} dir="auto">{block.text}</p>)}
        </section>
      )) : isOpen && <Waiting answer={answer} />}
    </details>
  );
}

function ReportTable({ of }: { of: Schemas["LabBlock"] }) {
  return (
    <>
      {of.text && <h4>{of.text}</h4>}
      <div class="scroll">
        <table>
          <thead><tr>{of.columns.map((name, at) => (
            <th key={at} class={of.numeric[at] ? "num" : ""}>{name}</th>))}</tr></thead>
          <tbody>
            {of.rows.map((row, at) => (
              <tr key={at}>{row.map((cell, place) => (
                <td key={place} class={of.numeric[place] ? "num" : ""}>
                  {cell.best ? <b>{cell.text}</b> : <bdi>{cell.text}</bdi>}
                </td>))}</tr>
            ))}
          </tbody>
        </table>
      </div>
      {of.caption && <p class="muted">{of.caption}</p>}
    </>
  );
}

export function LabView() {
  const isThere = about.value?.has_lab ?? false;
  const labs = usePost("/v1/studio/lab", isThere ? ({ lab: param("lab") || null }) : null);
  const runs = labs.data?.runs ?? [];
  const first = param("first") || runs[0]?.key || "";
  const question = first && labs.data
    ? { lab: labs.data.lab, first, second: param("second") || null }
    : null;
  const answer = usePost("/v1/studio/lab/compare", question);
  if (!isThere) {
    return <p class="empty">No lab is shown. Start the studio with --lab FOLDER, the --cache of
      dtdr lab run.</p>;
  }
  if (!labs.data) return <Waiting answer={labs} />;
  const options = runs.map((run): [string, string] => [run.key, label(run)]);
  return (
    <>
      <section class="panel" aria-label="Runs of the lab">
        <h1>Lab</h1>
        <div class="row">
          {labs.data.labs.length > 1 && (
            <Select label="Lab" value={labs.data.lab} options={labs.data.labs.map((name) =>
              [name, name])} set={(lab) => go("lab", { lab, first: null, second: null })} />
          )}
          <Select label="Run 1" value={first} options={options}
            set={(key) => go("lab", { first: key })} />
          <Select label="Run 2" value={param("second")} options={[["", "none"], ...options]}
            set={(key) => go("lab", { second: key })} />
        </div>
        {!runs.length && <p class="empty">This lab has no run that ranks.</p>}
        {answer.data ? <Sides of={answer.data} /> : question && <Waiting answer={answer} />}
      </section>
      {answer.data && <Charts of={answer.data} />}
      {answer.data && (
        <Worst steps={answer.data.worst} isCompared={answer.data.difference !== null} />
      )}
      <Report lab={labs.data.lab} />
    </>
  );
}
