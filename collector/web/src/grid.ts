// Series on one axis: what the API sends as points becomes one value per step, with `null` where nothing is known.
import type { Point, Responses, Values } from "./api";
import { msOf, WINDOW_MS } from "./time";

export interface Grid {
  /** Start of each step, ms; one more than there are values, so that the last step has an end. */
  times: number[];
  step_ms: number;
}

export interface Lines {
  max: Values; mean: Values; min: Values;
  /** Windows behind each step. */
  windows: number[];
}

/** The server merges as many windows per point as it needs to stay below `points_max`. */
export function gridOf(from: number, to: number, points_max: number): Grid {
  const first = Math.floor(from / WINDOW_MS);
  const last = Math.max(first, Math.ceil(to / WINDOW_MS) - 1);
  const windows = last - first + 1;
  const step_ms = Math.max(1, Math.ceil(windows / points_max)) * WINDOW_MS;
  const steps = Math.ceil((windows * WINDOW_MS) / step_ms);
  return { times: Array.from({ length: steps + 1 }, (_, i) => first * WINDOW_MS + i * step_ms), step_ms };
}

/** Points onto the grid. Where two fall into one step, extremes stay extremes. */
export function onto(grid: Grid, points: Point[]): Lines {
  const steps = grid.times.length;
  const [max, mean, min]: [Values, Values, Values] = [Array(steps).fill(null), Array(steps).fill(null), Array(steps).fill(null)];
  const start = grid.times[0] ?? 0;
  const weight: number[] = Array(steps).fill(0);
  for (const point of points) {
    const at = Math.floor((msOf(point.start_unix_ns) - start) / grid.step_ms);
    if (at < 0 || at >= steps - 1) continue;
    const before = weight[at] ?? 0;
    const total = before + point.windows;
    max[at] = before === 0 ? point.max : Math.max(max[at] ?? point.max, point.max);
    min[at] = before === 0 ? point.min : Math.min(min[at] ?? point.min, point.min);
    mean[at] = before === 0 ? point.mean : ((mean[at] ?? 0) * before + point.mean * point.windows) / total;
    weight[at] = total;
  }
  return { max, mean, min, windows: weight };
}

/** Values that come of response times by bucket. */
export type ShareName = "response_p50_ms" | "response_p99_ms" | "response_p99_least_ms" | "within_least_ratio" | "within_most_ratio";

/** Response times onto the grid, by name. Of one beyond the last edge between buckets that edge alone is known: it is a line of its own. */
export function quantiles(grid: Grid, points: Responses["points"]): [ShareName, Lines][] {
  const of = (value: (point: Responses["points"][number]) => number | null): Lines =>
    onto(grid, points.flatMap((point): Point[] => {
      const it = value(point);
      return it === null ? [] : [{ start_unix_ns: point.start_unix_ns, min: it, max: it, mean: it, windows: point.windows }];
    }));
  // The share of a step is that of its parts by their answers; the best of them is not.
  const share = (value: (point: Responses["points"][number]) => number | null): Lines => {
    const byAnswers = onto(grid, points.flatMap((point): Point[] => {
      const it = value(point);
      return it === null ? [] : [{ start_unix_ns: point.start_unix_ns, min: it, max: it, mean: it, windows: point.answers }];
    })).mean;
    return { ...of(value), max: byAnswers, min: byAnswers, mean: byAnswers };
  };
  return [
    ["response_p50_ms", of((point) => point.p50.ms)],
    ["response_p99_ms", of((point) => point.p99.ms)],
    ["response_p99_least_ms", of((point) => point.p99.at_least_ms)],
    ["within_least_ratio", share((point) => point.within?.least ?? null)],
    ["within_most_ratio", share((point) => point.within?.most ?? null)],
  ];
}

/** Steps of which response times are known, also where nothing was answered. */
export const known = (grid: Grid, points: Responses["points"]): Values =>
  onto(grid, points.map((point): Point => ({ start_unix_ns: point.start_unix_ns, min: 0, max: 0, mean: 0, windows: point.windows }))).max;

/** Stretches of `[from, to)` in which every one of `rows` has no value. */
export const gaps = (grid: Grid, rows: Values[]): { from: number; to: number }[] =>
  stretches(grid, (i) => rows.every((row) => row[i] === null || row[i] === undefined));

/** Stretches of `[from, to)` of steps that are `so`. */
export function stretches(grid: Grid, so: (step: number) => boolean): { from: number; to: number }[] {
  const found: { from: number; to: number }[] = [];
  for (let i = 0; i + 1 < grid.times.length; i += 1) {
    if (!so(i)) continue;
    const [from, to] = [grid.times[i]!, grid.times[i + 1]!];
    const last = found.at(-1);
    if (last && last.to === from) last.to = to;
    else found.push({ from, to });
  }
  return found;
}

/** Windows of the grid that none of `rows` has, as time: a step of many windows may lack some of them. */
export function missing(grid: Grid, rows: Lines[]): number {
  const windows = ((grid.times.at(-1) ?? 0) - (grid.times[0] ?? 0)) / WINDOW_MS;
  const there = grid.times.reduce((sum, _, i) => sum + Math.max(0, ...rows.map((row) => row.windows[i] ?? 0)), 0);
  return Math.max(0, windows - there) * WINDOW_MS;
}

export const peak = (values: Values): number | null =>
  values.reduce<number | null>((max, v) => (v === null ? max : max === null ? v : Math.max(max, v)), null);

/** Of all that is known; `null`: nothing is. */
export const total = (values: Values): number | null =>
  values.reduce<number | null>((sum, v) => (v === null ? sum : (sum ?? 0) + v), null);

/** Distances between marks of a time axis, ms. */
export const STEPS_MS = [
  50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000,
  3_600_000, 7_200_000, 14_400_000, 43_200_000, 86_400_000,
];

/** Distances between marks of an axis of counts: 1, 2, 5, 10 … */
export const WHOLE_STEPS = Array.from({ length: 10 }, (_, n) => [1, 2, 5].map((step) => step * 10 ** n)).flat();
