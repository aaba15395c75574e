// The prompt of a step: what of it was there before, what is new, and what that costs.
import { diffWordsWithSpace } from "diff";
import { useMemo } from "preact/hooks";
import { usePost } from "./api";
import type { Schemas } from "./api";
import { PolicyForm, policy } from "./run";
import { about, address, count, go, param, step } from "./state";
import { Select, Waiting } from "./widgets";

const LONGEST = 40_000; // characters of which differences are looked for; more would take seconds

type Part = { text: string; kind: "" | "added" | "removed" | "cached" };

/** The prompt in parts: what both steps begin with, and the differences after that. */
function parts(answer: Schemas["PromptResponse"]): Part[] {
  const { prompt, previous, cached } = answer;
  const same: Part[] = cached ? [{ text: prompt.text.slice(0, cached), kind: "cached" }] : [];
  const rest = prompt.text.slice(cached);
  const before = previous?.text.slice(cached) ?? "";
  if (!previous || rest.length + before.length > LONGEST) return [...same, { text: rest, kind: "" }];
  return [
    ...same,
    ...diffWordsWithSpace(before, rest).map(({ value, added, removed }): Part => ({
      text: value,
      kind: added ? "added" : removed ? "removed" : "",
    })),
  ];
}

const TAGS = { added: "ins", removed: "del", cached: "mark", "": "span" } as const;

export function PromptView() {
  const now = step.value;
  const icl = param("icl") || "hard";
  const question = now.query.trim()
    ? {
        query: now.query, before: now.before, history: now.calls, model: now.model, icl,
        policy: policy(),
      }
    : null;
  const answer = usePost("/v1/studio/prompt", question);
  const data = answer.data;
  const shown = useMemo(() => (data ? parts(data) : []), [data]);
  const methods = Object.entries(about.value?.icl_methods ?? {});
  return (
    <section class="panel" aria-label="Prompt">
      <h1>Prompt</h1>
      <p class="muted">
        What an LLM is sent to choose the next tool ·{" "}
        <a href={address("run")}>{now.calls.length
          ? `after ${now.calls.length} call${now.calls.length === 1 ? "" : "s"}`
          : "before the first call"}</a>
      </p>
      <Select label="How what was retrieved is written" value={icl}
        options={methods.map(([name, about]) => [name, `${name}: ${about}`])}
        set={(value) => go("prompt", { icl: value })} />
      <PolicyForm ofRun={false} />
      {data ? (
        <>
          <p class="facts">
            <span>about <b>{count(data.prompt.tokens)}</b> tokens</span>
            <span>
              {data.previous ? <>of which <b>{count(data.cached_tokens)}</b> are as in the step
                before, and can be cached</> : "the first step: nothing is cached yet"}
            </span>
            <span>the LLM may answer with {data.choices.length === 1 ? "one name"
              : `${count(data.choices.length)} names`}</span>
          </p>
          <p class="legend">
            <mark>as before</mark> <ins>new</ins> <del>gone since the step before</del>
          </p>
          <pre class="prompt" dir="auto" tabIndex={0} aria-label="Text of the prompt">
            {shown.map((part, at) => {
              const Tag = TAGS[part.kind];
              return <Tag key={at}>{part.text}</Tag>;
            })}
          </pre>
        </>
      ) : question ? <Waiting answer={answer} /> : (
        <p class="empty">Type a query in the run view first.</p>
      )}
    </section>
  );
}
