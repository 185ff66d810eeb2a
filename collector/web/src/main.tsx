// The frame around every page: name, navigation, state of the collector, clock and theme.
import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import { useCell, useNow } from "./cell";
import { help, KEYS } from "./keys";
import { agents, degraded, incidents, link, silences, start } from "./live";
import { endOf, recording, startOf } from "./moment";
import { Host } from "./pages/host";
import { Hosts } from "./pages/hosts";
import { List } from "./pages/list";
import { Login } from "./pages/login";
import { Silences } from "./pages/silences";
import { Sizing } from "./pages/sizing";
import { Story } from "./pages/story";
import { Topology } from "./pages/topology";
import { Moment, Note, Said } from "./parts";
import { place } from "./route";
import { know, leave, locked, who } from "./session";
import { dark, nextTheme, nextZone, zone } from "./settings";
import "./style.css";
import { length, msOf, zoneName } from "./time";
import { plural } from "./words";

function Connection() {
  const state = useCell(link);
  const known = useCell(agents);
  const shown = useCell(recording);
  const now = useNow(1000);
  const on = (known ?? []).filter((a) => a.connected).length;
  const away = (known ?? []).length - on;
  const text =
    state.state === "connecting" ? "connecting"
    : state.state === "lost" ? `collector unreachable for ${length(Math.max(now - state.since, 0)).replace(/\.\d+ s/, " s")}`
    : shown ? `recording · ${plural(on + away, "host")}`
    : known === null ? "live"
    : `live · ${plural(on, "agent")}${away > 0 ? `, ${away} away` : ""}`;
  return <span class={`connection ${state.state} ${shown ? "recorded" : away > 0 || (known !== null && on === 0) ? "part" : ""}`} role="status"><span class="dot" aria-hidden="true" /><span class="words">{text}</span></span>;
}

function Bar() {
  const { route } = useCell(place);
  const open = (useCell(incidents) ?? []).filter((i) => i.state === "open").length;
  const quiet = (useCell(silences)?.all ?? []).filter((one) => one.now).length;
  const recorded = useCell(recording) !== null;
  const in_ = useCell(zone);
  const isDark = useCell(dark);
  const closed = useCell(locked);
  const known = useCell(who);
  const item = (href: string, name: string, pages: string[], note = 0, what = "open") => (
    <a href={href} aria-current={pages.includes(route.page) ? "page" : undefined}>{name}{note > 0 ? <span class={`n ${what}`} aria-label={`${note} ${what}`}>{note}</span> : null}</a>
  );
  return (
    <header class="bar">
      <a class="skip" href="#content" onClick={(e) => { e.preventDefault(); const main = document.querySelector("main"); main?.setAttribute("tabindex", "-1"); main?.focus(); }}>Skip to content</a>
      <a class="name" href="/" aria-label="Tailwater, incidents"><img src="/mark.svg" alt="" width="24" height="24" />Tailwater</a>
      {!closed && (
        <nav aria-label="Pages">
          {item("/", "Incidents", ["list", "story"], open)}
          {item("/topology", "Topology", ["topology"])}
          {item("/sizing", "Sizing", ["sizing"])}
          {item("/hosts", "Hosts", ["hosts", "host"])}
          {!recorded && item("/silences", "Silences", ["silences"], quiet, "holding")}
        </nav>
      )}
      {!closed && <Connection />}
      <div class="tools">
        {!closed && known?.way === "session" && <button type="button" onClick={() => void leave()} title={`${known.name}, ${known.role}: end this browser's session`}>Sign out</button>}
        <button type="button" onClick={nextZone} title="UTC or local time (u)" aria-label={`Times in ${zoneName(Date.now(), in_)}; switch`}>{in_ === "utc" ? "UTC" : "Local"}</button>
        <button type="button" class="icon" onClick={nextTheme} title="dark or light (d)" aria-label={isDark ? "Light theme" : "Dark theme"}>
          <svg viewBox="0 0 16 16" aria-hidden="true"><path d={isDark ? "M8 4.500a3.500 3.500 0 1 0 0 7 3.500 3.500 0 0 0 0-7ZM8 0v2.500M8 13.500V16M0 8h2.500M13.500 8H16M2.300 2.300l1.800 1.800M11.900 11.900l1.800 1.800M2.300 13.700l1.800-1.800M11.900 4.100l1.800-1.800" : "M13.500 10.200A6 6 0 0 1 5.800 2.500a6 6 0 1 0 7.700 7.700Z"} /></svg>
        </button>
        <button type="button" class="icon" onClick={() => help.set(true)} title="keys (?)" aria-label="Keyboard shortcuts">?</button>
      </div>
    </header>
  );
}

function Help() {
  const open = useCell(help);
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (open && !dialog.current?.open) dialog.current?.showModal();
    if (!open) dialog.current?.close();
  }, [open]);
  const name = (key: string) => ({ ArrowDown: "↓", ArrowUp: "↑", Escape: "Esc" })[key] ?? key;
  return (
    <dialog ref={dialog} class="help" aria-labelledby="keys" onClose={() => help.set(false)} onClick={(e) => e.target === dialog.current && help.set(false)}>
      <h2 id="keys">Keys</h2>
      <dl>
        {KEYS.map((k) => (
          <div key={k.does}><dt>{k.keys.map((key) => key.split(" ").map((part) => <kbd key={key + part}>{name(part)}</kbd>))}</dt><dd>{k.does}</dd></div>
        ))}
        <div><dt><kbd>←</kbd><kbd>→</kbd></dt><dd>read a focused chart, window by window</dd></div>
      </dl>
      <p class="quiet">Nothing leaves this page's origin. <a href="/licenses.txt" target="_blank" rel="noreferrer">Licences</a></p>
      <button type="button" class="chip" onClick={() => help.set(false)}>Close</button>
    </dialog>
  );
}

function Body() {
  const { route, path } = useCell(place);
  switch (route.page) {
    case "list": return <List />;
    case "story": return <Story key={route.id} id={route.id} />;
    case "topology": return <Topology />;
    case "sizing": return <Sizing />;
    case "silences": return <Silences />;
    case "hosts": return <Hosts />;
    case "host": return <Host key={route.host} host={route.host} />;
    case "nowhere": return <main><Note tone="bad" title="There is no such page."><p>{path}</p><p><a href="/">Incidents</a></p></Note></main>;
  }
}

function Lost() {
  const state = useCell(link);
  const now = useNow(1000);
  const known = useCell(incidents) !== null;
  if (!known || state.state !== "lost" || now - state.since < 1500) return null;
  return <div class="lost-banner" role="alert">The collector does not answer. What is shown is from before; the page goes on by itself when it is back.</div>;
}

function Recorded() {
  const shown = useCell(recording);
  if (shown === null) return null;
  const [from, to] = [startOf(shown), endOf(shown)];
  const windows_from = msOf(shown.windows_from_unix_ns);
  return (
    <div class="recording-banner" role="status">
      <b>A recording</b>, not live: {shown.file}, {length(to - from)} from <Moment ms={from} /> to <Moment ms={to} withDay={false} />. Its end is “now” on this page.
      <span class="words">
        {shown.torn && <span>The file ends inside a record: what is whole is shown.</span>}
        {shown.refused > 0 && <span>{plural(shown.refused, "message")} could not be read.</span>}
        {windows_from > from && <span>Charts begin at <Moment ms={windows_from} />: older windows did not fit into memory. Incidents have their timelines all the same.</span>}
        {shown.incidents_dropped > 0 && <span>The oldest {plural(shown.incidents_dropped, "incident")} did not fit into memory.</span>}
      </span>
    </div>
  );
}

function Disk() {
  const why = useCell(degraded);
  if (why === null) return null;
  return (
    <div class="disk-banner" role="status">
      <b>The collector's disk takes nothing.</b> Incidents are found and told all the same, and kept in memory until it does.
      <span class="words"><Said text={why} /></span>
    </div>
  );
}

function Page() {
  if (useCell(locked)) return <><Bar /><Login /><Help /></>;
  return (
    <>
      <Bar />
      <Recorded />
      <Lost />
      <Disk />
      <Body />
      <Help />
    </>
  );
}

const root = document.getElementById("page");
void Promise.all([know(), start()]).then(() => root && render(<Page />, root));
