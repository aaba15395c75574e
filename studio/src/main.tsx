// The page: navigation, the server's state, and one view at a time.
import { render } from "preact";
import { useEffect } from "preact/hooks";
import { connection, get, revision, useAnswer } from "./api";
import type { Schemas } from "./api";
import { DropZone } from "./drop";
import { MapView } from "./map";
import { MissesView } from "./misses";
import { RunView } from "./run";
import { RunsView } from "./runs";
import { TITLES, VIEWS, about, address, go, model, place, theme } from "./state";
import { ToolsView } from "./tools";
import { Select, Waiting } from "./widgets";
import { WhyView } from "./why";

const SHOWN = {
  runs: RunsView, run: RunView, misses: MissesView, tools: ToolsView, map: MapView, why: WhyView,
};
const THEMES: Record<string, string> = { auto: "light", light: "dark", dark: "auto" };

function App() {
  const again = revision.value;
  const answer = useAnswer(`about ${again}`, (stop) =>
    get<Schemas["StudioAbout"]>("/v1/studio", stop),
  );
  useEffect(() => {
    if (!answer.data) return;
    about.value = answer.data;
    if (!location.hash && (answer.data.runs || !answer.data.models.length)) go("runs", {}, true);
  }, [answer.data]);
  const { view } = place.value;
  useEffect(() => {
    document.title = `${TITLES[view]} · dtdr studio`;
  }, [view]);
  const Shown = SHOWN[view];
  const models = about.value?.models ?? [];
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => {
        event.preventDefault();
        document.getElementById("main")?.focus();
      }}>Skip to the view</a>
      <header>
        <a class="brand" href="#/runs">dtdr <b>studio</b></a>
        <nav aria-label="Views">
          {VIEWS.map((name) => (
            <a key={name} href={address(name)} aria-current={name === view ? "page" : undefined}>
              {TITLES[name]}
            </a>
          ))}
        </nav>
        <span class="space" />
        {models.length > 1 && (
          <Select
            label="Model"
            value={model.value}
            options={models.map((item) => [item.name, item.name])}
            set={(name) => go(view, { model: name })}
          />
        )}
        <button
          class="quiet"
          onClick={() => (theme.value = THEMES[theme.value] ?? "auto")}
          aria-label={`Colours: ${theme.value}; change`}
        >
          {theme.value === "dark" ? "Dark" : theme.value === "light" ? "Light" : "Auto"}
        </button>
      </header>
      {connection.value === "away" && (
        <p class="banner" role="alert">
          The server does not answer. This page goes on when it is back.
        </p>
      )}
      <main id="main" tabIndex={-1}>
        {about.value && <DropZone isShown={view === "runs" || !models.length} />}
        {!about.value ? <Waiting answer={answer} /> : models.length > 0 && <Shown />}
      </main>
    </>
  );
}

const root = document.getElementById("app") as HTMLElement;
root.replaceChildren(); // render() adds to what is there
render(<App />, root);
