// All tools: calls, failures, what follows, and what a definition costs; never-called ones last.
import { useState } from "preact/hooks";
import { usePost } from "./api";
import { address, count, model, percent } from "./state";
import { Field, ModelLine, Scroll, Waiting } from "./widgets";

const MOST = 200;
const FEW = 0.001; // of all calls; tools below are folded

export function ToolsView() {
  const [text, setText] = useState("");
  const [isOpen, setOpen] = useState(false);
  const answer = usePost("/v1/studio/tools", { model: model.value });
  const wanted = text.trim().toLowerCase();
  const found = (answer.data?.tools ?? []).filter((item) =>
    `${item.tool}\n${item.description}`.toLowerCase().includes(wanted));
  const calls = found.reduce((sum, item) => sum + item.calls, 0);
  const below = wanted ? [] : found.filter((item) => item.calls < FEW * calls);
  const rare = below.length < found.length ? below : []; // of tools called alike, none is rare
  const tools = isOpen ? found : found.slice(0, found.length - rare.length);
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
        <Scroll label="Tools"><table>
          <thead><tr><th>Tool</th><th class="num">Calls</th><th class="num wide">Runs</th>
            <th class="num">Failed calls</th><th class="wide">Mostly followed by</th>
            <th class="num">Tokens</th></tr></thead>
          <tbody>
            {tools.slice(0, MOST).map((item) => (
              <tr key={item.tool} class={item.calls ? "" : "is-hidden"}>
                <td>
                  <a href={address("map", { tool: item.tool })}>
                    <bdi class="name" title={item.description || item.tool}>{item.tool}</bdi>
                  </a>
                </td>
                <td class="num">{count(item.calls)}</td>
                <td class="num wide">{count(item.runs)}</td>
                <td class="num">
                  {item.errors ? `${count(item.errors)} (${percent(item.errors / item.calls)})` : 0}
                </td>
                <td class="wide">
                  {item.calls ? (
                    <><bdi>{item.next ?? "the end"}</bdi>{" "}
                      <small class="muted">{percent(item.share)}</small></>
                  ) : <span class="muted">never called</span>}
                </td>
                <td class="num">{count(item.tokens)}</td>
              </tr>
            ))}
          </tbody>
        </table></Scroll>
      )}
      {rare.length > 0 && (
        <p>
          <button aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            {isOpen ? "Hide" : "Show"} {count(rare.length)} tools below {percent(FEW)} of the calls
          </button>{" "}
          <span class="muted">
            {count(rare.filter((item) => !item.calls).length)} of them are never called.
          </span>
        </p>
      )}
      {tools.length > MOST && (
        <p class="muted">The first {MOST} of {count(tools.length)} tools; search for the others.</p>
      )}
    </section>
  );
}
