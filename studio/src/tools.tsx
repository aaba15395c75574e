// All tools: calls, failures, what follows, and what a definition costs; never-called ones last.
import { useState } from "preact/hooks";
import { usePost } from "./api";
import { address, count, model, percent } from "./state";
import { Field, ModelLine, Waiting } from "./widgets";

const MOST = 200;

export function ToolsView() {
  const [text, setText] = useState("");
  const answer = usePost("/v1/studio/tools", { model: model.value });
  const wanted = text.trim().toLowerCase();
  const tools = (answer.data?.tools ?? []).filter((item) =>
    `${item.tool}\n${item.description}`.toLowerCase().includes(wanted));
  return (
    <section class="panel" aria-label="Tools">
      <h1>Tools <ModelLine /></h1>
      <div class="row">
        <Field label="Name or description contains">
          <input type="search" value={text}
            onInput={(event) => setText(event.currentTarget.value)} />
        </Field>
      </div>
      {!answer.data ? <Waiting answer={answer} /> : !tools.length ? (
        <p class="empty">No tool matches. Change the text.</p>
      ) : (
        <div class="scroll" tabIndex={0} role="group" aria-label="Tools"><table>
          <thead><tr><th>Tool</th><th class="num">Calls</th><th class="num">Runs</th>
            <th class="num">Failed calls</th><th>Mostly followed by</th>
            <th class="num">Tokens</th></tr></thead>
          <tbody>
            {tools.slice(0, MOST).map((item) => (
              <tr key={item.tool} class={item.calls ? "" : "is-hidden"}>
                <td>
                  <a href={address("map", { tool: item.tool, whole: null })}>
                    <bdi class="name" title={item.description || item.tool}>{item.tool}</bdi>
                  </a>
                </td>
                <td class="num">{count(item.calls)}</td>
                <td class="num">{count(item.runs)}</td>
                <td class="num">
                  {item.errors ? `${count(item.errors)} (${percent(item.errors / item.calls)})` : 0}
                </td>
                <td>
                  {item.calls ? (
                    <><bdi>{item.next ?? "the end"}</bdi>{" "}
                      <small class="muted">{percent(item.share)}</small></>
                  ) : <span class="muted">never called</span>}
                </td>
                <td class="num">{count(item.tokens)}</td>
              </tr>
            ))}
          </tbody>
        </table></div>
      )}
      {tools.length > MOST && (
        <p class="muted">The first {MOST} of {count(tools.length)} tools; search for the others.</p>
      )}
    </section>
  );
}
