import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";
import type { Incident } from "./api";
import { beyond, LIST_MAX, merged } from "./between";

const T = 1_795_271_940_000;
const incident = (n: number, version = 1) => ({ id: `01${String(n).padStart(6, "0")}`, version, start_unix_ns: (T + n * 1000) * 1e6 }) as Incident;
const full = Array.from({ length: LIST_MAX }, (_, n) => incident(n));

test("only what the newest incidents do not reach is asked for", () => {
  equal(beyond(null, T, null), null, "nothing is known yet");
  equal(beyond(full, null, null), null, "no time is set");
  equal(beyond(full.slice(1), T - 1, null), null, "these are all there are");
  equal(beyond(full, T + 5000, null), null, "they reach back to it");
});

test("what is asked for ends where the newest incidents begin, or before", () => {
  const asked = (from: number | null, to: number | null) => Object.fromEntries(new URL(beyond(full, from, to)!, "http://any").searchParams);
  deepEqual(asked(T - 90_500, T - 10_000), { limit: "1000", since: `${T - 120_000}000000`, until: `${T - 10_000}000000` });
  deepEqual(asked(T - 60_000, T + 60_000), { limit: "1000", since: `${T - 60_000}000000`, until: `${T}000000` });
  deepEqual(asked(null, T - 7), { limit: "1000", until: `${T - 7}000000` });
});

test("what came live replaces what was asked for, newest first", () => {
  deepEqual(merged([incident(3), incident(2, 5)], [incident(2), incident(1)]).map((i) => [i.id, i.version]), [["01000003", 1], ["01000002", 5], ["01000001", 1]]);
});
