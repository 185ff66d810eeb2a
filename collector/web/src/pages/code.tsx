// Where in its code the root of an incident ran, or its threads waited.
import type { Code, Root } from "../api";

/** Functions that are shown of a place before all of them are asked for. */
const SHOWN = 8;

const WHOSE: Record<Code["doing"], string> = { running: "CPU samples", waiting: "waiting threads" };

/** Functions from the innermost out. */
function way(functions: string[], more: boolean): string {
  return [...(functions.length > 0 ? functions : ["the kernel"]), ...(more ? ["…"] : [])].join(" < ");
}

function Place({ of }: { of: Code }) {
  const cut = of.cut ?? false;
  const longer = of.frames.length > SHOWN;
  return (
    <li>
      <span class="who"><b>{of.comm}</b> <span class="quiet">pid {of.pid}, of its {WHOSE[of.doing]}</span></span>
      <span class="share">{of.percent} %</span>
      <code>{way(of.frames.slice(0, SHOWN), longer || cut)}</code>
      {longer && <details><summary>all {of.frames.length} functions</summary><code>{way(of.frames, cut)}</code></details>}
    </li>
  );
}

export function InItsCode({ root }: { root: Root }) {
  const all = root.code ?? [];
  if (all.length === 0) return null;
  return (
    <>
      <h3>In its code</h3>
      <ul class="shares in-code">{all.map((of, n) => <Place key={n} of={of} />)}</ul>
    </>
  );
}
