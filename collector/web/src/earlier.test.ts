import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";
import type { Incident } from "./api";
import { alike, earlier } from "./earlier";

const incident = (id: string, start_unix_ns: number, over: { resource?: string; root?: string; tiers?: string[]; hosts?: string[] } = {}): Incident => {
  const tiers = over.tiers ?? ["web", "app"];
  const hosts = over.hosts ?? ["web-1", "app-1"];
  return {
    id, start_unix_ns,
    root: { resource: over.resource ?? "cpu_neighbour", tier: over.root ?? "app" },
    hops: tiers.map((tier, n) => ({ tier, host: hosts[n] ?? "elsewhere" })),
  } as unknown as Incident;
};

test("alike are the same cause at the same tier by the same tiers, with a host in common", () => {
  const this_ = incident("z", 100);
  equal(alike(this_, incident("a", 1)), true);
  equal(alike(this_, incident("a", 1, { hosts: ["web-1", "app-2"] })), true, "another replica");
  equal(alike(this_, incident("a", 1, { hosts: ["web-9", "app-9"] })), false, "another application");
  equal(alike(this_, incident("a", 1, { resource: "io" })), false);
  equal(alike(this_, incident("a", 1, { root: "web" })), false);
  equal(alike(this_, incident("a", 1, { tiers: ["web", "app", "db"] })), false);
  equal(alike(this_, incident("a", 1, { tiers: ["app"] })), false);
});

test("what came before is told, the newest first", () => {
  const this_ = incident("z", 100);
  const all = [incident("later", 101), this_, incident("b", 20), incident("a", 10), incident("other", 30, { resource: "io" })];
  deepEqual(earlier(this_, all).map((i) => i.id), ["b", "a"]);
  deepEqual(earlier(incident("a", 10), all), []);
});
