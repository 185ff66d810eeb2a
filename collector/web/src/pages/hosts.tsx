// Who reports: every agent with the state of its stream, its clock and what it costs.
import { useEffect } from "preact/hooks";
import { query, type Agent, type NowAnswer, type Seen } from "../api";
import { useCell } from "../cell";
import { agents, link } from "../live";
import { recording, useMoment } from "../moment";
import { Moment, Note, StartAgents, Trail, useAsk, Wait } from "../parts";
import { hostAddress } from "../route";
import { ago, msOf, toAddress } from "../time";
import { agentCost, bytes, count, number, percent, plural } from "../words";

/** Of a host that is gone, the last of what is kept. */
const LOOK_MS = 300_000;

export function AgentState({ agent, now }: { agent: Agent; now: number }) {
  if (useCell(recording) && agent.connected) return <span class="badge">recorded</span>;
  return agent.connected
    ? <span class="badge good"><span class="dot" aria-hidden="true" />connected</span>
    : <span class="badge critical">no agent since {ago(msOf(agent.since_unix_ns), now)}</span>;
}

/** Known from before the collector started, not to its agents. */
export const LastSeen = ({ ms, now }: { ms: number; now: number }) => <span class="badge critical">not connected, last seen {ago(ms, now)}</span>;

export const clockError = (a: Agent): string => (a.clock.error_ns === undefined ? "unknown" : `± ${number(a.clock.error_ns / 1e6)} ms`);

export function Hosts() {
  const known = useCell(agents);
  const connection = useCell(link);
  const now = useMoment(1000);
  const seen = useAsk<{ inventory: Seen[] }>(query("/api/v1/inventory", { kind: "host" }), 30_000);
  const state = useAsk<NowAnswer>(query("/api/v1/now", { seconds: 5 }), useCell(recording) ? 0 : 1000);
  useEffect(() => {
    document.title = "Hosts · Tailwater";
  }, []);
  if (known === null) {
    return <main>{connection.state === "lost" ? <Note tone="bad" title="The collector does not answer." /> : <Wait what="agents" />}</main>;
  }
  const before = seen.state === "there" ? seen.value.inventory.filter((s) => !known.some((a) => a.host === s.host)) : [];
  before.sort((a, b) => b.last_unix_ns - a.last_unix_ns);
  return (
    <main class="hosts">
      <h1>Hosts</h1>
      {known.length === 0 && seen.state !== "waiting" && <Note title={before.length > 0 ? "No agent has connected since the collector started." : "No agent has ever connected."}><StartAgents /></Note>}
      <ul class="cards">
        {known.map((a) => {
          const at = state.state === "there" ? state.value.hosts.find((h) => h.host === a.host) : undefined;
          const busy = at?.metrics["cpu_busy_ratio"];
          const uncovered = a.coverage.filter((c) => !c.covered);
          const sampled = a.coverage.filter((c) => c.sampled);
          return (
            <li key={a.host} class="card">
              <div class="card-head"><a class="card-name" href={hostAddress(a.host)}>{a.host}</a><AgentState agent={a} now={now} /></div>
              {at && <Trail values={at.trail} limit={1} label="CPU busy, the last 5 s" />}
              <p class="numbers">
                <span><b>{busy?.max == null ? "no data" : percent(busy.max)}</b> CPU at most</span>
                <span><b>{busy?.mean == null ? "no data" : percent(busy.mean)}</b> mean, 5 s</span>
              </p>
              <dl class="pairs">
                <dt>Kernel</dt><dd>{a.kernel_release || "unknown"}, {plural(a.cpus, "CPU")}</dd>
                <dt>Clock</dt><dd>{clockError(a)}</dd>
                <dt>Windows lost</dt><dd>{count(a.windows_lost)}</dd>
                <dt>Agent</dt><dd>{a.agent_version}{a.resident_bytes > 0 && `, ${agentCost(a)}, ${bytes(a.resident_bytes)}`}</dd>
                {sampled.length > 0 && <><dt>Sampled</dt><dd>{sampled.map((c) => c.signal.replaceAll("_", " ")).join(", ")}</dd></>}
                {uncovered.length > 0 && <><dt>Not covered</dt><dd>{uncovered.map((c) => c.signal.replaceAll("_", " ")).join(", ")}</dd></>}
              </dl>
            </li>
          );
        })}
        {before.map((s) => (
          <li key={s.host} class="card gone">
            <div class="card-head"><a class="card-name" href={hostAddress(s.host, { from: toAddress(msOf(s.last_unix_ns) - LOOK_MS), to: toAddress(msOf(s.last_unix_ns)) })}>{s.host}</a><LastSeen ms={msOf(s.last_unix_ns)} now={now} /></div>
            <dl class="pairs">
              <dt>First seen</dt><dd><Moment ms={msOf(s.first_unix_ns)} /></dd>
              <dt>Last seen</dt><dd><Moment ms={msOf(s.last_unix_ns)} /></dd>
            </dl>
          </li>
        ))}
      </ul>
    </main>
  );
}
