import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";
import { gaps, gridOf, known, missing, onto, peak, quantiles, stretches } from "./grid";

const T = 1_795_271_939_100;
const point = (n: number, max: number, windows = 1) => ({ start_unix_ns: (T + n * 50) * 1e6, min: max / 2, max, mean: max * 0.75, windows });

test("a missing window is a gap and a zero is a zero", () => {
  const grid = gridOf(T, T + 250, 100);
  const { max } = onto(grid, [point(0, 5), point(1, 0), point(4, 7)]);
  deepEqual(max, [5, 0, null, null, 7, null]);
  deepEqual(gaps(grid, [max]), [{ from: T + 100, to: T + 200 }]);
  equal(peak(max), 7);
  equal(peak([null, null]), null);
});

test("a quantile beyond the last edge is a line of its own, and silence is no value", () => {
  const grid = gridOf(T, T + 150, 100);
  const at = (ms: number | null, at_least_ms: number | null = null) => ({ ms, at_least_ms });
  const start = (n: number) => ({ start_unix_ns: (T + n * 50) * 1e6, windows: 1, answers: 9 });
  const lines = new Map(quantiles(grid, [
    { ...start(0), p50: at(2), p99: at(8), within: { least: 1, most: 1 } },
    { ...start(1), p50: at(3), p99: at(null, 524.288), within: { least: 0.9, most: 0.98 } },
    { ...start(2), p50: at(null), p99: at(null), within: null },
  ]));
  deepEqual(lines.get("response_p50_ms")?.max, [2, 3, null, null]);
  deepEqual(lines.get("response_p99_ms")?.max, [8, null, null, null]);
  deepEqual(lines.get("response_p99_least_ms")?.max, [null, 524.288, null, null]);
  deepEqual(lines.get("within_least_ratio")?.max, [1, 0.9, null, null]);
  deepEqual(lines.get("within_most_ratio")?.max, [1, 0.98, null, null]);
});

test("the share of a step is that of all its answers, and a step of which nothing is known is none without any", () => {
  const grid = gridOf(T, T + 400, 2);
  const none = { ms: null, at_least_ms: null };
  const points = [
    { start_unix_ns: T * 1e6, windows: 1, answers: 30, p50: none, p99: none, within: { least: 1, most: 1 } },
    { start_unix_ns: (T + 50) * 1e6, windows: 1, answers: 10, p50: none, p99: none, within: { least: 0.2, most: 0.6 } },
    { start_unix_ns: (T + 100) * 1e6, windows: 1, answers: 0, p50: none, p99: none, within: null },
  ];
  const lines = new Map(quantiles(grid, points));
  deepEqual(lines.get("within_least_ratio")?.max, [0.8, null, null]);
  deepEqual(lines.get("within_most_ratio")?.max, [0.9, null, null]);
  equal(lines.get("within_least_ratio")?.windows[0], 2);
  deepEqual(known(grid, points), [0, null, null]);
  deepEqual(known(grid, points.slice(2)), [0, null, null], "silence is known");
});

test("windows side by side are one stretch", () => {
  const grid = gridOf(T, T + 250, 100);
  const row = [0, 3, 1, 0, 2];
  deepEqual(stretches(grid, (at) => row[at]! > 0), [{ from: T + 50, to: T + 150 }, { from: T + 200, to: T + 250 }]);
});

test("an hour fits into the points there are, and extremes stay", () => {
  const grid = gridOf(T, T + 3_600_000, 900);
  equal(grid.times.length, 901);
  equal(grid.step_ms, 4000);
  const { max, min, mean } = onto(grid, [point(0, 8, 60), point(60, 2, 20)]);
  deepEqual([max[0], min[0], mean[0]], [8, 1, (6 * 60 + 1.5 * 20) / 80]);
});

test("points outside of the grid are left out", () => {
  const grid = gridOf(T, T + 100, 10);
  deepEqual(onto(grid, [point(-1, 1), point(2, 1)]).max, [null, null, null]);
});

test("what is missing is counted in windows, also where a step has some of them", () => {
  const grid = gridOf(T, T + 12_000, 3);
  equal(grid.step_ms, 4000);
  const there = onto(grid, [point(0, 1, 80), point(80, 1, 30)]);
  equal(missing(grid, [there, onto(grid, [])]), 50 * 50 + 4000);
  equal(missing(grid, [there, onto(grid, [point(160, 1, 80)])]), 50 * 50);
});
