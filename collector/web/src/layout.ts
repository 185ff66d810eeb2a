// Places for a graph of callers: columns by distance from who is called by nobody, rows in the order of their callers. Pure.
import type { Topology } from "./api";

export interface Box {
  key: string; name: string; host: string; workload: string; listeners: string[]; ghost: boolean;
  x: number; y: number; width: number; height: number;
}
export interface Wire { path: string; from: string; to: string }
export interface Drawn { boxes: Box[]; wires: Wire[]; width: number; height: number }

const WIDTH = 236;
const HEIGHT = 200;
const GHOST_HEIGHT = 58;
const [GAP_X, GAP_Y] = [84, 26];
const GAP_DOWN = 44;
/** Called addresses without an agent, per caller; the others are one box. */
const GHOSTS_MAX = 3;

export function layout(graph: Topology, narrow: boolean): Drawn {
  const keyOf = (host: string, workload: string) => `${host}\n${workload}`;
  const boxes = new Map<string, Box>();
  const box = (key: string, name: string, host: string, workload: string, listeners: string[], ghost: boolean): void => {
    boxes.set(key, { key, name, host, workload, listeners, ghost, x: 0, y: 0, width: WIDTH, height: ghost ? GHOST_HEIGHT : HEIGHT });
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
    if (to === null) unseen.set(from, [...(unseen.get(from) ?? []), e.remote]);
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
  return narrow ? down(columns, [...wires.values()]) : across(columns, [...wires.values()]);
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

function across(columns: Box[][], wires: { from: string; to: string }[]): Drawn {
  const tall = (column: Box[]) => column.reduce((sum, b) => sum + b.height + GAP_Y, -GAP_Y);
  const height = Math.max(...columns.map(tall), 0);
  columns.forEach((column, n) => {
    let y = (height - tall(column)) / 2;
    for (const b of column) {
      [b.x, b.y] = [n * (WIDTH + GAP_X), y];
      y += b.height + GAP_Y;
    }
  });
  const boxes = columns.flat();
  return { boxes, wires: drawn(boxes, wires, false), width: columns.length * (WIDTH + GAP_X) - GAP_X, height };
}

function down(columns: Box[][], wires: { from: string; to: string }[]): Drawn {
  let y = 0;
  for (const b of columns.flat()) {
    [b.x, b.y] = [0, y];
    y += b.height + GAP_DOWN;
  }
  const boxes = columns.flat();
  return { boxes, wires: drawn(boxes, wires, true), width: WIDTH + 40, height: Math.max(y - GAP_DOWN, 0) };
}

function drawn(boxes: Box[], wires: { from: string; to: string }[], narrow: boolean): Wire[] {
  const at = new Map(boxes.map((b) => [b.key, b]));
  return wires.flatMap(({ from, to }) => {
    const [a, b] = [at.get(from), at.get(to)];
    if (!a || !b) return [];
    if (narrow) {
      const next = boxes.indexOf(b) === boxes.indexOf(a) + 1;
      const x = a.x + WIDTH / 2;
      if (next) return [{ from, to, path: `M${x} ${a.y + a.height}V${b.y - 2}` }];
      const [right, bend] = [a.x + WIDTH, a.x + WIDTH + 34];
      return [{ from, to, path: `M${right} ${a.y + a.height / 2}C${bend} ${a.y + a.height / 2} ${bend} ${b.y + b.height / 2} ${right + 2} ${b.y + b.height / 2}` }];
    }
    const [x1, y1, x2, y2] = [a.x + WIDTH, a.y + a.height / 2, b.x - 2, b.y + b.height / 2];
    const bend = Math.max(GAP_X / 2, Math.abs(x2 - x1) / 3);
    return [{ from, to, path: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` }];
  });
}
