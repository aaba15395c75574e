// Everything that is asked of the server: typed by its OpenAPI document, one place for errors.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { components, paths } from "./api-types";

export type Schemas = components["schemas"];
export type Ranking = Schemas["RankResponse"];
export type Made = Schemas["CallMade"];

type Posts = { [P in keyof paths]: paths[P] extends { post: infer O } ? O : never };
type Json<T> = T extends { content: { "application/json": infer B } } ? B : never;
type BodyOf<O> = O extends { requestBody?: infer R } ? Json<NonNullable<R>> : never;
type Good<R> = R extends { 200: infer A } ? Json<A>
  : R extends { 201: infer A } ? Json<A> : R extends { 202: infer A } ? Json<A> : never;
type ReplyOf<O> = O extends { responses: infer R } ? Good<R> : never;
export type Body<P extends keyof Posts> = BodyOf<Posts[P]>;
export type Reply<P extends keyof Posts> = ReplyOf<Posts[P]>;

/** Whether the server answers. */
export const connection = signal<"fine" | "away">("fine");
/** Grows when the server is back, so that everything is asked again. */
export const revision = signal(0);

export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

async function request(
  method: string,
  path: string,
  body?: unknown,
  stop?: AbortSignal,
  headers: Record<string, string> = {},
) {
  if (body !== undefined) headers["content-type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? null : JSON.stringify(body),
      signal: stop ?? null,
    });
  } catch (error) {
    if (stop?.aborted) throw error;
    lose();
    throw new Refused(0, "The server does not answer.");
  }
  if (response.status === 204) return null;
  const answer = await response.json().catch(() => null);
  if (!response.ok) {
    throw new Refused(response.status, answer?.error?.message ?? `status ${response.status}`);
  }
  return answer;
}

export function post<P extends keyof Posts & string>(
  path: P,
  body: Body<P>,
  options: { run?: string; stop?: AbortSignal } = {},
): Promise<Reply<P>> {
  const headers: Record<string, string> = options.run ? { "x-dtdr-run": options.run } : {};
  return request("POST", path, body, options.stop, headers) as Promise<Reply<P>>;
}

export function get<T>(path: string, stop?: AbortSignal): Promise<T> {
  return request("GET", path, undefined, stop) as Promise<T>;
}

function lose(): void {
  if (connection.value === "away") return;
  connection.value = "away";
  const look = setInterval(async () => {
    const alive = await fetch("/healthz").then((response) => response.ok, () => false);
    if (!alive) return;
    clearInterval(look);
    connection.value = "fine";
    revision.value++;
  }, 1_000);
}

// -- answers in components ----------------------------------------------------------------------

export interface Answer<T> {
  data: T | null;
  error: string;
  loading: boolean;
}

const PAUSE = 700; // milliseconds before an answer that is not final is asked for again

/** Asks whenever the question changes; the last answer stays until the next one is there. */
export function useAnswer<T>(
  question: string | null,
  ask: (stop: AbortSignal) => Promise<T>,
  isWorking: (data: T) => boolean = () => false,
): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T>>({ data: null, error: "", loading: true });
  const again = revision.value;
  useEffect(() => {
    if (question === null) {
      setAnswer({ data: null, error: "", loading: false });
      return;
    }
    const stop = new AbortController();
    let timer = 0;
    setAnswer((last) => ({ ...last, error: "", loading: true }));
    const once = () => ask(stop.signal).then(
      (data) => {
        if (stop.signal.aborted) return;
        setAnswer({ data, error: "", loading: false });
        if (isWorking(data)) timer = setTimeout(once, PAUSE);
      },
      (error: Error) =>
        !stop.signal.aborted && setAnswer({ data: null, error: error.message, loading: false }),
    );
    once();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [question, again]);
  return answer;
}

export function usePost<P extends keyof Posts & string>(
  path: P,
  body: Body<P> | null,
): Answer<Reply<P>> {
  const question = body === null ? null : path + JSON.stringify(body);
  return useAnswer(question, (stop) => post(path, body as Body<P>, { stop }));
}

/** The same, again and again while the server is still working on it. */
export function usePolled<P extends keyof Posts & string>(
  path: P,
  body: Body<P> | null,
): Answer<Reply<P>> {
  const question = body === null ? null : path + JSON.stringify(body);
  return useAnswer(question, (stop) => post(path, body as Body<P>, { stop }),
    (data) => !!(data as { working?: boolean }).working);
}

// -- ranking ------------------------------------------------------------------------------------

export interface Step {
  model: string;
  query: string;
  before: Record<string, unknown>[];
  calls: Made[];
}

export const history = (calls: Made[]): (Made | string)[] =>
  calls.map((call) => (Object.keys(call).length === 1 ? call.tool : call));

/** Names the run, so that a load balancer may send its steps to the same server. */
const nameRun = (): string => Math.random().toString(36).slice(2);

/** Ranks a step: the whole run is sent with each, and the server keeps nothing. */
function rank({ model, query, before, calls }: Step, count: number, run: string): Promise<Ranking> {
  return post("/v1/rank", { query, before, model, history: history(calls), top_k: count }, { run });
}

/** The ranking of a step; what is typed faster than it is ranked is skipped, never queued. */
export function useRanking(step: Step | null, count: number): Answer<Ranking> {
  const [run] = useState(nameRun);
  const pending = useRef<{ step: Step; count: number } | null>(null);
  const isBusy = useRef(false);
  const [answer, setAnswer] = useState<Answer<Ranking>>({ data: null, error: "", loading: true });
  const question = step && step.query.trim() ? JSON.stringify([step, count]) : null;
  const again = revision.value;
  useEffect(() => {
    pending.current = question === null ? null : { step: step as Step, count };
    if (question === null) {
      setAnswer({ data: null, error: "", loading: false });
      return;
    }
    if (!isBusy.current) void work();
  }, [question, again]);

  async function work(): Promise<void> {
    isBusy.current = true;
    setAnswer((last) => ({ ...last, loading: true }));
    while (pending.current) {
      const next = pending.current;
      pending.current = null;
      try {
        const data = await rank(next.step, next.count, run);
        if (!pending.current) setAnswer({ data, error: "", loading: false });
      } catch (error) {
        setAnswer({ data: null, error: (error as Error).message, loading: false });
      }
    }
    isBusy.current = false;
  }
  return answer;
}
