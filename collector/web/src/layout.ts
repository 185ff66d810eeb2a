// Places for a graph of callers: columns by distance from who is called by nobody, rows in the order of their callers. Pure.
import type { Topology } from "./api";

export interface Box {
  key: string; name: string; host: string; workload: string; listeners: string[]; ghost: boolean;
  x: number; y: number; width: number; height: number;
}
export interface Wire { path: string; from: string; to: string }
export interface Drawn { boxes: Box[]; wires: Wire[]; width: number; height: number }

/** How large boxes are, and how far apart. */
interface Measures { width: number; height: number; ghost: number; gapX: number; gapY: number; down: number }
const LARGE: Measures = { width: 236, height: 200, ghost: 58, gapX: 84, gapY: 26, down: 44 };
const SMALL: Measures = { width: 160, height: 92, ghost: 50, gapX: 46, gapY: 14, down: 22 };
/** With more boxes than this they are small, and tiers on several hosts are one. */
export const MANY = 12;
/** Called addresses without an agent, per caller; the others are one box. */
const GHOSTS_MAX = 3;

/** A tier that runs on several hosts, as one node of the graph; its host is empty. */
export interface Folded { workload: string; hosts: string[] }

/** The graph with each tier as one that several hosts have: the same workload, which listens at the same ports there. Those in `open` stay apart. Pure. */
export function fold(graph: Topology, open: ReadonlySet<string>): { graph: Topology; folded: Folded[] } {
  const ports = (listeners: string[]) => [...new Set(listeners.map((l) => l.slice(l.lastIndexOf(":"))))].sort().join();
  const groups = new Map<string, Topology["nodes"]>();
  for (const n of graph.nodes) {
    if (n.workload === "" || n.listeners.length === 0 || open.has(n.workload)) continue;
    const key = `${n.workload}\n${ports(n.listeners)}`;
    groups.set(key, [...(groups.get(key) ?? []), n]);
  }
  const member = new Map<string, Folded>();
  const folded: Folded[] = [];
  for (const nodes of groups.values()) {
    const hosts = [...new Set(nodes.map((n) => n.host))];
    if (hosts.length < 2 || folded.some((f) => f.workload === nodes[0]!.workload)) continue;
    const one = { workload: nodes[0]!.workload, hosts };
    folded.push(one);
    for (const host of hosts) member.set(`${host}\n${one.workload}`, one);
  }
  const within = (host: string, workload: string) => (member.has(`${host}\n${workload}`) ? "" : host);
  const alone = graph.nodes.filter((n) => !member.has(`${n.host}\n${n.workload}`));
  const listeners = (one: Folded) => [...new Set(graph.nodes.filter((n) => n.workload === one.workload && one.hosts.includes(n.host)).flatMap((n) => n.listeners))];
  return {
    folded,
    graph: {
      nodes: [...folded.map((one) => ({ host: "", workload: one.workload, tier: one.workload, listeners: listeners(one) })), ...alone],
      edges: graph.edges.map((e) => ({
        ...e,
        from_host: within(e.from_host, e.from_workload),
        to_host: e.to_host !== null && e.to_workload !== null ? within(e.to_host, e.to_workload) : e.to_host,
      })),
    },
  };
}

export function layout(graph: Topology, narrow: boolean, small = false): Drawn {
  const m = small ? SMALL : LARGE;
  const keyOf = (host: string, workload: string) => `${host}\n${workload}`;
  const boxes = new Map<string, Box>();
  const box = (key: string, name: string, host: string, workload: string, listeners: string[], ghost: boolean): void => {
    boxes.set(key, { key, name, host, workload, listeners, ghost, x: 0, y: 0, width: m.width, height: ghost ? m.ghost : m.height });
  };
  for (const n of graph.nodes) {
    const key = keyOf(n.host, n.workload);
    const before = boxes.get(key)?.listeners ?? [];
    box(key, n.workload || n.host, n.host, n.workload, [...before, ...n.listeners], false);
  }
  const wires = new Map<string, { from: string; to: string }>();
  const unseen = new Map<string, string[]>();
  for (const e of graph.edges) {
    const from = keyOf(e.from_host, e.from_workload);
    if (!boxes.has(from)) continue;
    const to = e.to_host !== null && e.to_workload !== null ? keyOf(e.to_host, e.to_workload) : null;
    // Several hosts of one tier may call the same address.
    if (to === null) unseen.set(from, [...new Set([...(unseen.get(from) ?? []), e.remote])]);
    else if (to !== from && boxes.has(to)) wires.set(`${from}\r${to}`, { from, to });
  }
  for (const [from, remotes] of unseen) {
    const shown = remotes.length > GHOSTS_MAX ? [`${remotes.length} addresses`] : remotes;
    for (const remote of shown) {
      const key = remotes.length > GHOSTS_MAX ? `${from}\r${remote}` : `?${remote}`;
      if (!boxes.has(key)) box(key, remote, "", "", [], true);
      wires.set(`${from}\r${key}`, { from, to: key });
    }
  }
  const layer = layers([...boxes.keys()], [...wires.values()]);
  const columns: Box[][] = [];
  for (const b of boxes.values()) (columns[layer.get(b.key) ?? 0] ??= []).push(b);
  for (let n = 0; n < columns.length; n += 1) columns[n] ??= [];
  order(columns, [...wires.values()]);
  return narrow ? down(columns, [...wires.values()], m) : across(columns, [...wires.values()], m);
}

/** The longest way from a caller that nobody calls; a cycle is cut where it was entered. */
function layers(keys: string[], wires: { from: string; to: string }[]): Map<string, number> {
  const layer = new Map(keys.map((key) => [key, 0]));
  for (let round = 0; round < keys.length; round += 1) {
    let moved = false;
    for (const { from, to } of wires) {
      const next = (layer.get(from) ?? 0) + 1;
      if (next > (layer.get(to) ?? 0) && next < keys.length) {
        layer.set(to, next);
        moved = true;
      }
    }
    if (!moved) break;
  }
  // A cycle pushes its members far out: layers that nobody is in are closed up.
  const used = [...new Set(layer.values())].sort((a, b) => a - b);
  for (const [key, at] of layer) layer.set(key, used.indexOf(at));
  return layer;
}

/** Each column in the order of the middle of its callers. */
function order(columns: Box[][], wires: { from: string; to: string }[]): void {
  columns.forEach((column, n) => {
    const before = columns[n - 1] ?? [];
    const middle = (b: Box): number => {
      const rows = wires.filter((w) => w.to === b.key).map((w) => before.findIndex((c) => c.key === w.from)).filter((row) => row >= 0);
      return rows.length === 0 ? Infinity : rows.reduce((a, c) => a + c, 0) / rows.length;
    };
    const at = new Map(column.map((b) => [b.key, middle(b)]));
    column.sort((a, b) => {
      const [x, y] = [at.get(a.key) ?? 0, at.get(b.key) ?? 0];
      return x === y ? a.key.localeCompare(b.key) : x - y;
    });
  });
}

function across(columns: Box[][], wires: { from: string; to: string }[], m: Measures): Drawn {
  const tall = (column: Box[]) => column.reduce((sum, b) => sum + b.height + m.gapY, -m.gapY);
  const height = Math.max(...columns.map(tall), 0);
  columns.forEach((column, n) => {
    let y = (height - tall(column)) / 2;
    for (const b of column) {
      [b.x, b.y] = [n * (m.width + m.gapX), y];
      y += b.height + m.gapY;
    }
  });
  const boxes = columns.flat();
  return { boxes, wires: drawn(boxes, wires, false, m), width: columns.length * (m.width + m.gapX) - m.gapX, height };
}

function down(columns: Box[][], wires: { from: string; to: string }[], m: Measures): Drawn {
  let y = 0;
  for (const b of columns.flat()) {
    [b.x, b.y] = [0, y];
    y += b.height + m.down;
  }
  const boxes = columns.flat();
  return { boxes, wires: drawn(boxes, wires, true, m), width: m.width + 40, height: Math.max(y - m.down, 0) };
}

function drawn(boxes: Box[], wires: { from: string; to: string }[], narrow: boolean, m: Measures): Wire[] {
  const at = new Map(boxes.map((b) => [b.key, b]));
  return wires.flatMap(({ from, to }) => {
    const [a, b] = [at.get(from), at.get(to)];
    if (!a || !b) return [];
    if (narrow) {
      const next = boxes.indexOf(b) === boxes.indexOf(a) + 1;
      const x = a.x + m.width / 2;
      if (next) return [{ from, to, path: `M${x} ${a.y + a.height}V${b.y - 2}` }];
      const [right, bend] = [a.x + m.width, a.x + m.width + 34];
      return [{ from, to, path: `M${right} ${a.y + a.height / 2}C${bend} ${a.y + a.height / 2} ${bend} ${b.y + b.height / 2} ${right + 2} ${b.y + b.height / 2}` }];
    }
    const [x1, y1, x2, y2] = [a.x + m.width, a.y + a.height / 2, b.x - 2, b.y + b.height / 2];
    const bend = Math.max(m.gapX / 2, Math.abs(x2 - x1) / 3);
    return [{ from, to, path: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` }];
  });
}
