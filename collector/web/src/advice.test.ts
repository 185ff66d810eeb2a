import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";
import { changed, classOf, curveOf, doublings, endsOf, leftOut, lineOf, part, parted, seconds, standstill, whyNot, withoutOne } from "./advice";
import type { Pool, TierAdvice } from "./api";

const refused = (reason: string, why?: string) => ({ refused: { reason }, ...(why === undefined ? {} : { why }) });
const pool = (at_most: number | null, of = "measured"): { class: string; value: Pool } => ({ class: of, value: { advised: 26, at_least: 24, at_most, seen_to: 61 } });
const tier = (changes: Partial<TierAdvice>): TierAdvice => ({
  tier: "tomcat10@app", host: "app", workload: "tomcat10.service", address: "::", port: 8080, sentence: "tomcat10@app:8080: 26 at a time are enough", model: "law",
  learnt_s: 11_531, seen_to: 61, cpu_s_per_request: null, cpus: null, critical: null, pool: pool(33), throughput_max: refused("x"), in_flight: refused("x"),
  expected_loss: refused("x"), left_out: [], points: [], ...changes,
});
const points = (...at: number[]) => at.map((in_flight) => ({ in_flight, throughput: 100, error: 10 }));

test("an upper end that was not seen is said to be so, and is no number", () => {
  equal(endsOf(pool(33)), "24 to 33 cost at most 2 %");
  equal(endsOf(pool(null, "plateau")), "24 or more; no upper end was seen up to 61 in flight");
  equal(endsOf(pool(null, "extrapolated")), "no upper end was seen up to 61 in flight");
});

test("the line begins with the listener, whatever the collector calls it", () => {
  deepEqual(lineOf(tier({})), { name: "tomcat10@app:8080", rest: ": 26 at a time are enough" });
  deepEqual(lineOf(tier({ sentence: "no size: too little" })), { name: "tomcat10@app:8080", rest: ": no size: too little" });
});

test("a refusal is told by its sentence, and without one by its reason", () => {
  equal(whyNot(refused("no_plateau", "no plateau of throughput was seen")), "no plateau of throughput was seen");
  equal(whyNot(refused("no_plateau")), "no plateau");
  equal(whyNot(pool(33)), null);
  equal(classOf(refused("x")), "refused");
  const parts = parted([tier({ pool: refused("x") }), tier({ port: 1 })]);
  deepEqual([parts.advised.map((t) => t.port), parts.refused.map((t) => t.port)], [[1], [8080]]);
});

test("a change is marked only where it is certain what came of it", () => {
  const of = (verdict: string) => changed(tier({ change: { at_unix_ns: 1, verdict, sentence: "servers 1 → 2" } }))?.tone;
  deepEqual(["better", "worse", "alike", "uncertain", "too_little"].map(of), ["good", "bad", "quiet", "quiet", "quiet"]);
  equal(changed(tier({})), null);
  equal(changed(tier({ change: null })), null);
});

test("a curve ends where its upper end or the last point is, and is open where no end was seen", () => {
  const closed = curveOf(tier({ points: points(61, 1, 26) }))!;
  deepEqual([closed.at, closed.from, closed.to, closed.open, closed.log], [[1, 26, 61], 24, 33, false, false]);
  equal(closed.low[0]!.toFixed(1), "80.4");
  equal(closed.high[0]!.toFixed(1), "119.6");
  const open = curveOf(tier({ points: points(1, 61), pool: pool(null) }))!;
  deepEqual([open.to, open.open], [open.x[1], true]);
  const none = curveOf(tier({ points: points(1, 61), pool: refused("x") }))!;
  deepEqual([none.advised, none.from, none.to, none.open], [null, null, null, false]);
});

test("a standstill is told with its places, or why none overflows", () => {
  const has = { per_second: 930, cpu_ratio: 0.37, full_at: 2.7, places: 279, overflows_after_s: 0.3, outlasted: false };
  equal(standstill(has), "its accept queue overflows after 300 ms (279 places)");
  equal(standstill({ ...has, overflows_after_s: null, outlasted: true }), "its callers cannot fill its accept queue");
  equal(standstill({ ...has, overflows_after_s: null, places: null }), "when its accept queue overflows is not known");
});

test("what is left of a tier is told with the minute that it must bear", () => {
  const of = { servers: 1, per_second: 940, days: 7, cpu_ratio: 1.16 };
  equal(withoutOne(of), "CPU of the 1 server that is left: 116 % in the busiest minute of 7 days (940 requests/s)");
  equal(withoutOne({ ...of, servers: 3, days: 1 }).startsWith("CPU of the 3 servers that are left: 116 % in the busiest minute of the day that was seen"), true);
});

test("costs are shown as what full CPUs would answer, where the size rests on them", () => {
  const costs = [{ in_flight: 11, cpu_s: 0.0005, error_s: 0.00001 }, { in_flight: 140, cpu_s: 0.001, error_s: 0.00001 }];
  const by = (model: string, cpus: number | null) => curveOf(tier({ points: points(80, 90), model, cpus, costs }))!;
  deepEqual(by("utilisation", 0.5).costs, [{ at: 11, throughput: 1000 }, { at: 140, throughput: 500 }]);
  deepEqual([by("utilisation", 0.5).top, by("utilisation", 0.5).x[1] > 140], [1060, true]);
  deepEqual([by("plateau", 0.5).costs, by("utilisation", null).costs], [[], []]);
});

test("an axis that reaches far is logarithmic, and never reaches zero then", () => {
  const far = curveOf(tier({ points: points(0, 1, 400) }))!;
  equal(far.log, true);
  equal(far.x[0] > 0, true);
  deepEqual(far.at, [1, 400]);
  deepEqual(doublings(far.x), [1, 2, 4, 8, 16, 32, 64, 128, 256]);
});

test("one point is no curve", () => {
  equal(curveOf(tier({ points: points(3) })), null);
  equal(curveOf(tier({ points: [] })), null);
});

test("an error that is larger than its value ends at zero", () => {
  equal(curveOf(tier({ points: [{ in_flight: 1, throughput: 1, error: 5 }, { in_flight: 2, throughput: 9, error: 1 }] }))!.low[0], 0);
});

test("a reason that this page does not know is shown by its name", () => {
  equal(leftOut("steal"), "the hypervisor took CPU");
  equal(leftOut("phase_of_moon"), "phase of moon");
});

test("a loss that is not nothing is not told as nothing", () => {
  equal(part(0), "0 %");
  equal(part(0.0004), "below 0.1 %");
  equal(part(0.0123), "1.2 %");
  equal(seconds(11_531), "3 h 12 min");
});
