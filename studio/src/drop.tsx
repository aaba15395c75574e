// A log dropped on the page: sent in parts to this machine's server, then read and learned from.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, post, revision } from "./api";
import type { Schemas } from "./api";
import { about, go } from "./state";

type State = Schemas["LogState"];

const PART = 512_000; // bytes; the server takes bodies of 1 MB, and base64 adds a third
const PAUSE = 700; // milliseconds between two looks at what the server does

async function toBase64(part: Blob): Promise<string> {
  const url = await new Promise<string>((done, fail) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result as string);
    reader.onerror = () => fail(reader.error);
    reader.readAsDataURL(part);
  });
  return url.slice(url.indexOf(",") + 1);
}

/** Takes a dropped file in every view; the runs, or a studio without a model, say so. */
export function DropZone({ isShown }: { isShown: boolean }) {
  const [state, setState] = useState<State | null>(null);
  const [error, setError] = useState("");
  const [isOver, setOver] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const isEmpty = !about.value?.models.length;

  const follow = async () => {
    const now = await get<State>("/v1/studio/log");
    setState(now);
    if (now.working) setTimeout(() => follow().catch(fail), PAUSE);
    else if (now.model) {
      go("runs", { model: now.model, from: null }, true);
      revision.value++;
    }
  };
  const fail = (reason: Error) => setError(reason.message);
  const send = async (file: File) => {
    setError("");
    let offset = 0;
    do {
      const part = file.slice(offset, offset + PART);
      const isLast = offset + part.size >= file.size;
      const content = part.size ? await toBase64(part) : "";
      setState(await post("/v1/studio/log", { name: file.name, content, offset, is_last: isLast }));
      offset += part.size;
    } while (offset < file.size);
    await follow();
  };

  useEffect(() => {
    const hasFile = (event: DragEvent) => event.dataTransfer?.types.includes("Files");
    const over = (event: DragEvent) => {
      if (!hasFile(event)) return;
      event.preventDefault();
      setOver(event.type === "dragover");
    };
    const drop = (event: DragEvent) => {
      over(event);
      setOver(false);
      const file = event.dataTransfer?.files[0];
      if (file) send(file).catch(fail);
    };
    const listeners: [string, (event: DragEvent) => void][] =
      [["dragover", over], ["dragleave", over], ["drop", drop]];
    for (const [name, listener] of listeners) addEventListener(name, listener as EventListener);
    return () => {
      for (const [name, listener] of listeners) removeEventListener(name, listener as EventListener);
    };
  }, []);

  if (!isShown && !isOver && !state?.working && !error) return null;
  return (
    <section class={`panel drop ${isOver ? "is-over" : ""}`} aria-label="A log of yours">
      {isEmpty && <h1>See what your agent's runs say</h1>}
      <p>
        <button disabled={state?.working} onClick={() => input.current?.click()}>Open a log</button>{" "}
        or drop it on the page: dtdr learns from four fifths of its runs and shows where it is wrong
        on the others. The log stays on this machine.
      </p>
      <input ref={input} type="file" hidden aria-hidden="true" tabIndex={-1}
        onChange={(event) => {
          const file = event.currentTarget.files?.[0];
          event.currentTarget.value = "";
          if (file) send(file).catch(fail);
        }} />
      {state?.stage && <p class="note" role="status">{state.stage}</p>}
      {error && <p class="error" role="alert">{error}</p>}
    </section>
  );
}
