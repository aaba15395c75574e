// The tools of all runs: the main ones from left to right, or one between its neighbours.
import { useMemo, useState } from "preact/hooks";
import { usePost } from "./api";
import type { Schemas } from "./api";
import { about, address, count, go, model, param, percent } from "./state";
import {
  Bar, Field, ModelLine, Name, RunFilters, Scroll, Waiting, isFiltered, runFilter,
} from "./widgets";

type Graph = Schemas["GraphResponse"];
type Node = Schemas["Node"];

const COLUMN = 232; // of the drawing, in its own units
const ROW = 40;
const PILL = 184;
const SHARE = 0.1; // edges below this share of what follows are left out at first

export const titleOf = (node: Node): string =>
  node.kind === "tool" ? node.name : node.kind === "start" ? "start of a run" : "end of a run";

function describe(node: Node): string {
  if (node.kind !== "tool") return titleOf(node);
  const parts = [`${count(node.calls)} calls in ${count(node.runs)} runs`];
  if (node.repeats) parts.push(`${count(node.repeats)} runs call it again`);
  if (node.errors) parts.push(`${count(node.errors)} calls failed`);
  if (node.failed_runs) parts.push(`${count(node.failed_runs)} runs failed`);
  return `${node.name}: ${parts.join(", ")}`;
}

const weight = (edge: Graph["edges"][number]): number => edge.order + edge.dependency;

/** Positions of the nodes in columns from left to right: before and after the centre, or by the
    mean place of the tools in runs. */
function columnsOf(graph: Graph, middle: number): number[][] {
  const all = graph.nodes.map((_, at) => at);
  if (middle >= 0) {
    const before = (at: number) => graph.edges.reduce((sum, edge) => sum
      + (edge.source === at && edge.target === middle ? weight(edge) : 0)
      - (edge.source === middle && edge.target === at ? weight(edge) : 0), 0);
    const others = all.filter((at) => at !== middle);
    return [others.filter((at) => before(at) >= 0), [middle], others.filter((at) => before(at) < 0)]
      .filter((column) => column.length);
  }
  const of = (kind: Node["kind"]) => all.filter((at) => graph.nodes[at]!.kind === kind);
  const tools = of("tool").sort((one, two) =>
    graph.nodes[one]!.position - graph.nodes[two]!.position);
  const count = Math.max(1, Math.round(Math.sqrt(tools.length / 3)));
  const ends = Array.from({ length: count + 1 }, (_, at) => Math.round(at * tools.length / count));
  const parts = ends.slice(1).map((end, at) => tools.slice(ends[at], end));
  return [of("start"), ...parts.filter((part) => part.length), of("end")];
}

/** Sorts each column by the mean height of what its nodes are linked with, to and fro, so that few
    edges cross (Sugiyama, Tagawa and Toda 1981); gives heights from 0 to 1. */
function heightsOf(graph: Graph, columns: number[][]): number[] {
  const height: number[] = [];
  const spread = (column: number[]) => column.forEach((at, row) => {
    height[at] = (row + 0.5) / column.length;
  });
  const mean = (at: number) => {
    let [sum, total] = [0, 0];
    for (const edge of graph.edges) {
      if (edge.source === edge.target || (edge.source !== at && edge.target !== at)) continue;
      total += weight(edge);
      sum += weight(edge) * height[edge.source === at ? edge.target : edge.source]!;
    }
    return total ? sum / total : height[at]!;
  };
  columns.forEach(spread);
  for (let sweep = 0; sweep < 6; sweep++) {
    for (const column of sweep % 2 ? [...columns].reverse() : columns) {
      const means = new Map(column.map((at) => [at, mean(at)]));
      column.sort((one, two) => means.get(one)! - means.get(two)!);
      spread(column);
    }
  }
  return height;
}

/** The edges worth drawing: strong ones and the strongest from each node; at a centre those that
    lead to it from the left and on from it to the right. */
function strong(graph: Graph, least: number, middle: number, column: number[]): Graph["edges"] {
  if (middle >= 0) {
    return graph.edges.filter((edge) => (edge.source === middle || edge.target === middle)
      && (edge.source === edge.target || column[edge.source]! < column[edge.target]!));
  }
  const best = new Map<number, number>();
  graph.edges.forEach((edge) => {
    best.set(edge.source, Math.max(best.get(edge.source) ?? 0, edge.probability));
  });
  return graph.edges.filter((edge) =>
    edge.probability > 0 && (edge.probability >= least || edge.probability === best.get(edge.source)));
}

/** At most some hundred tools, as SVG that can be read, tabbed through and clicked. */
function Drawing({ graph, least, centre }: { graph: Graph; least: number; centre: string }) {
  const [near, setNear] = useState<number | null>(null);
  const middle = centre
    ? graph.nodes.findIndex((node) => node.kind === "tool" && node.name === centre) : -1;
  const [columns, heights] = useMemo(() => {
    const columns = columnsOf(graph, middle);
    return [columns, heightsOf(graph, columns)];
  }, [graph, middle]);
  const column = graph.nodes.map((_, at) => columns.findIndex((part) => part.includes(at)));
  const rows = Math.max(...columns.map((part) => part.length), 3);
  const width = COLUMN * columns.length;
  const height = ROW * (rows + 1);
  const places = graph.nodes.map((node, at) => ({
    x: COLUMN * (column[at]! + 0.5),
    y: ROW / 2 + heights[at]! * (height - ROW),
    half: node.kind === "tool" ? PILL / 2 : 32,
  }));
  const edges = strong(graph, least, middle, column);
  const isOn = (edge: Graph["edges"][number]) =>
    near === null || edge.source === near || edge.target === near;
  const path = (edge: Graph["edges"][number]) => {
    const one = places[edge.source]!;
    const two = places[edge.target]!;
    if (edge.source === edge.target) {
      const x = one.x + one.half - 14;
      return `M${x} ${one.y - 13}c-6 -16 22 -16 12 0`;
    }
    const from = one.x + one.half;
    const to = two.x - two.half;
    const bend = to > from ? (to - from) / 2 : 40;
    // Back to an earlier column: out on the right, round between the rows, in from the left.
    if (to <= from) {
      const middle = (one.y + two.y) / 2 + (one.y === two.y ? ROW / 2 : 0);
      return `M${from} ${one.y}C${from + 26} ${one.y} ${from + 26} ${middle} ${(from + to) / 2} ` +
        `${middle}S${to - 26} ${two.y} ${to - 4} ${two.y}`;
    }
    return `M${from} ${one.y}C${from + bend} ${one.y} ${to - bend} ${two.y} ${to - 4} ${two.y}`;
  };
  return (
    <Scroll label="Graph of the tools" kind="drawing">
      <svg viewBox={`0 0 ${width} ${height}`} style={{
        minWidth: `${columns.length * 190}px`, maxWidth: `${width * 1.15}px`,
      }}
        role="group" aria-label={`${graph.nodes.length - 2} tools from left to right`}>
        <defs>
          {["order", "uses"].map((kind) => (
            <marker key={kind} id={`tip-${kind}`} class={kind} viewBox="0 0 6 6" refX="5" refY="3"
              markerWidth="6" markerHeight="6" markerUnits="userSpaceOnUse" orient="auto">
              <path d="M0 0L6 3L0 6z" />
            </marker>
          ))}
        </defs>
        <g class="edges" aria-hidden="true">
          {edges.map((edge) => {
            const kind = edge.dependency ? "uses" : "order";
            return (
              <path key={`${edge.source} ${edge.target}`} d={path(edge)}
                class={`${kind} ${isOn(edge) ? "" : "is-off"}`} stroke-width={0.8 + 5 * edge.probability}
                marker-end={`url(#tip-${kind})`}>
                <title>{`${titleOf(graph.nodes[edge.source]!)} → ${titleOf(graph.nodes[edge.target]!)
                }: ${count(edge.order)} times, ${percent(edge.probability)}; output used ${
                  count(edge.dependency)} times`}</title>
              </path>
            );
          })}
        </g>
        {graph.nodes.map((node, at) => {
          const { x, y, half } = places[at]!;
          const mark = (
            <>
              <title>{describe(node)}</title>
              <rect x={x - half} y={y - 13} width={2 * half} height={26} rx={node.kind === "tool" ? 6 : 13} />
              {node.kind === "tool" ? (
                <svg x={x - half + 8} y={y - 13} height={26}
                  width={2 * half - (node.errors > 0 || node.failed_runs > 0 ? 32 : 12)}>
                  <text y="17.5">{node.name}</text>
                </svg>
              ) : <text x={x} y={y + 4.5} text-anchor="middle">{node.kind}</text>}
              {(node.errors > 0 || node.failed_runs > 0) && (
                <text class="failed" x={x + half - 8} y={y + 4.5} text-anchor="end">✕</text>
              )}
            </>
          );
          const events = {
            onMouseEnter: () => setNear(at), onMouseLeave: () => setNear(null),
            onFocus: () => setNear(at), onBlur: () => setNear(null),
          };
          return node.kind === "tool" ? (
            <a key={at} href={address("map", { tool: node.name })} {...events}
              class={`node ${node.name === centre ? "is-centre" : ""}`} aria-label={describe(node)}>
              {mark}
            </a>
          ) : <g key={at} class="node end" {...events}>{mark}</g>;
        })}
      </svg>
    </Scroll>
  );
}

function Neighbours({ title, list }: { title: string; list: Schemas["Neighbour"][] }) {
  return (
    <div>
      <h3>{title}</h3>
      <ul class="bars">
        {list.slice(0, 8).map((item) => (
          <li key={item.tool}>
            <span class="top">
              {item.tool ? (
                <a href={address("map", { tool: item.tool })}><Name of={item.tool} /></a>
              ) : <i>{title.startsWith("Before") ? "start of a run" : "end of a run"}</i>}
              <span class="value">{percent(item.share)} <small>({count(item.count)})</small></span>
            </span>
            <Bar share={item.share} />
          </li>
        ))}
      </ul>
      {!list.length && <p class="muted">Nothing.</p>}
    </div>
  );
}

const SOURCES: Record<string, string> = {
  query: "the query", output: "an output", "earlier message": "an earlier message",
  argument: "an earlier argument", other: "elsewhere",
};

function ToolPanel({ tool }: { tool: string }) {
  const answer = usePost("/v1/studio/tool", { tool, filter: runFilter(), model: model.value });
  const of = answer.data;
  if (!of) return <section class="panel"><h2><Name of={tool} /></h2><Waiting answer={answer} /></section>;
  return (
    <section class="panel" aria-label="Tool">
      <h2><Name of={of.tool} /></h2>
      <p dir="auto">{of.description || "No description."}</p>
      <p class="facts">
        <span><b>{count(of.calls)}</b> calls in <b>{count(of.runs)}</b> runs</span>
        <span>about {count(of.tokens)} tokens in a prompt</span>
        <a href={address("map", { tool: null })}>all tools</a>
      </p>
      <div class="two">
        <Neighbours title="Before it" list={of.before} />
        <Neighbours title="After it" list={of.after} />
      </div>
      {of.arguments.length > 0 && (
        <>
          <h3>Where its arguments come from</h3>
          <Scroll label="Sources of arguments">
            <table>
              <thead><tr><th>Argument</th><th>From</th></tr></thead>
              <tbody>
                {of.arguments.slice(0, 12).map((item) => {
                  const total = Object.values(item.sources).reduce((sum, value) => sum + value, 0);
                  return (
                    <tr key={item.argument}>
                      <td><Name of={item.argument} /></td>
                      <td>
                        {Object.entries(item.sources).map(([source, value]) =>
                          `${SOURCES[source] ?? source} ${percent(value / total)}`).join(", ")}
                        {item.tools.length > 0 && (
                          <><br /><small class="muted">of <bdi>{item.tools.join(", ")}</bdi></small></>
                        )}
                      </td>
                    </tr>
                  );
                })}
              </tbody>
            </table>
          </Scroll>
        </>
      )}
      {(about.value?.runs ?? 0) > 0 && of.calls > 0 && (
        <p><a href={address("runs", { calls_tool: of.tool, from: null })}>Runs that call it</a></p>
      )}
    </section>
  );
}

/** The tool in the middle; the end of a run, which the Why view knows, is none. */
const shownTool = (): string => (param("tool") === "end" ? "" : param("tool"));

function Filters({ names }: { names: string[] }) {
  const set = (name: string) => (value: string) => go("map", { [name]: value }, true);
  const [find, setFind] = useState("");
  return (
    <div class="row">
      <Field label="Find a tool">
        <input type="search" list="tools" value={find} onInput={(event) => {
          const name = event.currentTarget.value;
          setFind(name);
          if (names.includes(name)) go("map", { tool: name });
        }} />
      </Field>
      <datalist id="tools">{names.map((name) => <option key={name} value={name} />)}</datalist>
      <RunFilters view="map" />
      {!shownTool() && (
        <Field label={`Edges from ${percent(Number(param("least") || SHARE))}`}>
          <input type="range" min="0" max="0.5" step="0.02" value={param("least") || SHARE}
            aria-valuetext={percent(Number(param("least") || SHARE))}
            onInput={(event) => set("least")(event.currentTarget.value)} />
        </Field>
      )}
    </div>
  );
}

export function MapView() {
  const tool = shownTool();
  const answer = usePost("/v1/studio/graph", {
    filter: runFilter(), tool: tool || null, limit: 60, model: model.value,
  });
  const graph = answer.data;
  const names = graph?.nodes.filter((node) => node.kind === "tool").map((node) => node.name) ?? [];
  const isEmpty = graph && !graph.tools;
  return (
    <>
      <section class="panel" aria-label="Map">
        <h1>Map <ModelLine /></h1>
        <details class="filters" open={innerWidth > 600}>
          <summary>Filters</summary>
          <Filters names={[...names, ...(graph?.uncalled ?? [])]} />
        </details>
        {graph && !isEmpty && (
          <p class="facts">
            <span><b>{count(graph.runs)}</b> runs call <b>{count(graph.tools)}</b> tools</span>
            {graph.uncalled.length > 0 && (
              <span>never called: {graph.uncalled.length === 200 ? "200 and more" : graph.uncalled.length}{" "}
                of the model's tools</span>
            )}
            <span class="legend">
              <i class="line order" /> comes next <i class="line uses" /> uses the output{" "}
              <b class="bad">✕</b> fails somewhere
            </span>
          </p>
        )}
        {graph && !isEmpty && (
          <Drawing graph={graph} least={Number(param("least") || SHARE)} centre={tool} />
        )}
        {isEmpty && (
          <p class="empty">
            {isFiltered() ? "No run matches. Change the filter." : (
              <>This model keeps no plans. Start the studio with <code>--data FILE</code> to see
                the runs of a demonstrations.jsonl.</>
            )}
          </p>
        )}
        {!graph && <Waiting answer={answer} />}
      </section>
      {tool && <ToolPanel tool={tool} />}
    </>
  );
}
