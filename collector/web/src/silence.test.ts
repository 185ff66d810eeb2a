import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";
import type { Incident, Silence, Silenced } from "./api";
import { draftOf, EMPTY, endMeant, fitsOf, hoursOf, placed, placesOf, sorted, stageOf, untoldBy, wantedOf } from "./silence";

const NOW = Date.parse("2026-11-26T23:50:00Z");
const one = (id: string, now: boolean, silence: Partial<Silence>, incidents: string[] = []): Silenced => ({
  id, by: "ann", made_unix_ns: NOW * 1e6, now, untold: incidents.length, incidents, silence: { comment: "c", ...silence },
});
const at = (host: string, workload: string) => ({ host, workload, tier: workload, listener: `${host}:80` });
const incident = (version: number, drops: object[]) => ({ id: "01A", version, drops, root: at("db-1", "mariadb.service") }) as unknown as Incident;

test("one that holds, one to come, one that waits for its hours and one that is over are told apart", () => {
  const all = [
    one("s1", false, { until: "2026-11-26T23:49:00Z" }),
    one("s2", false, { from: "2026-11-27T02:00:00Z", until: "2026-11-27T04:00:00Z" }),
    one("s3", true, { until: "2026-11-27T06:00:00Z" }),
    one("s4", false, { daily: "02:00-04:00" }),
    one("s5", true, { until: "2026-11-27T00:30:00+00:00" }),
    one("s6", true, {}),
    one("s7", false, { from: "2026-11-27T01:00:00Z" }),
  ];
  deepEqual(all.map((s) => stageOf(s, NOW)), ["over", "to come", "holds", "not at this hour", "holds", "holds", "to come"]);
  const { holding, coming } = sorted(all, NOW);
  deepEqual(holding.map((s) => s.id), ["s5", "s3", "s6"], "the next to end first, one for ever last");
  deepEqual(coming.map((s) => s.id), ["s7", "s2", "s4"]);
});

test("what it fits is named, and without a matcher that is everything", () => {
  deepEqual(fitsOf({ comment: "c" }), []);
  deepEqual(fitsOf({ comment: "c", kinds: [], hooks: [], host: "web-*", listener: "*:80" }), [{ name: "host", value: "web-*" }, { name: "listener", value: "*:80" }]);
  deepEqual(fitsOf({ comment: "c", kinds: ["syn_flood", "near_overflow"], hooks: ["slack"] }), [{ name: "kind", value: "SYN flood, Near overflow" }, { name: "hook", value: "slack" }]);
  deepEqual([hoursOf({ comment: "c" }), hoursOf({ comment: "c", daily: "22:00-04:30", days: ["sat", "sun"] })], [null, "22:00-04:30, sat, sun UTC"]);
});

test("a form begins with what dropped, because that is told before any root is known", () => {
  const dropped = incident(2, [at("web-1", "apache2.service"), at("web-1", "apache2.service"), at("web-2", "apache2.service")]);
  deepEqual(placesOf(dropped).map((p) => `${p.what} ${p.name}`), ["dropped apache2.service@web-1", "dropped apache2.service@web-2", "root mariadb.service@db-1"]);
  deepEqual(draftOf(dropped), { ...EMPTY, host: "web-1", workload: "apache2.service" });
  deepEqual(placesOf(incident(0, [at("web-1", "apache2.service")])).map((p) => p.what), ["dropped"], "of an early alert the root is not known");
  deepEqual(draftOf(incident(1, [])), { ...EMPTY, host: "db-1", workload: "mariadb.service" });
  const written = { ...draftOf(dropped), comment: "a deploy", end: "2h", listener: "*:80", hooks: "slack" };
  deepEqual(placed(written, placesOf(dropped)[2]!), { ...written, host: "db-1", workload: "mariadb.service", listener: "" }, "what was written stays");
});

test("an end is a time from now, a moment, or the next time that the clock shows it", () => {
  const meant = (text: string) => {
    const ms = endMeant(text, "utc", NOW);
    return ms === null ? null : new Date(ms).toISOString();
  };
  equal(meant("2h"), "2026-11-27T01:50:00.000Z");
  equal(meant("06:00"), "2026-11-27T06:00:00.000Z");
  equal(meant("23:55"), "2026-11-26T23:55:00.000Z");
  equal(meant("2026-11-28 06:00"), "2026-11-28T06:00:00.000Z");
  equal(meant("2026-11-20 06:00"), "2026-11-20T06:00:00.000Z", "a day that is over is not made another one");
  deepEqual([meant(""), meant("tomorrow"), meant("2 hours")], [null, null, null]);
});

test("the collector is asked for what is written and nothing else", () => {
  const draft = { ...EMPTY, comment: " a deploy ", host: " web-1 ", workload: "" };
  deepEqual(wantedOf(draft, "utc", NOW), { for_s: 3600, silence: { comment: "a deploy", host: "web-1" } });
  deepEqual(wantedOf({ ...draft, end: "06:00", kind: "syn_flood", hooks: "slack, ,pager" }, "utc", NOW), {
    silence: { comment: "a deploy", host: "web-1", kinds: ["syn_flood"], hooks: ["slack", "pager"], until: "2026-11-27T06:00:00.000Z" },
  });
  deepEqual(wantedOf({ ...EMPTY, end: " " }, "utc", NOW), { silence: { comment: "" } }, "no end is made up");
  deepEqual(wantedOf({ ...EMPTY, end: "tomorrow" }, "utc", NOW), { silence: { comment: "", until: "tomorrow" } }, "the collector says what is wrong with it");
});

test("an incident names the newest silence that held something of it back", () => {
  const by = untoldBy([one("s1", true, {}, ["01A", "01B"]), one("s2", false, {}, ["01B"])]);
  deepEqual([by.get("01A")?.id, by.get("01B")?.id, by.get("01C")], ["s1", "s2", undefined]);
});
