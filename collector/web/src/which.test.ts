import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";
import type { Incident } from "./api";
import { goesThrough, rootedAt, rootsOf, servicesOf } from "./which";

const place = (tier: string, workload: string, host: string) => ({ tier, workload, host });
const one = {
  version: 1, root: place("db", "mariadb.service", "db-1"),
  hops: [place("app", "tomcat10.service", "app-1"), place("db", "mariadb.service", "db-1")], drops: [place("web", "apache2.service", "web-1")],
} as unknown as Incident;
const open = { version: 0, root: place("web", "apache2.service", "web-1"), hops: [], drops: [] } as unknown as Incident;

test("a root is found by its tier, workload and host, and a workload without the type of its unit", () => {
  for (const name of ["db", "mariadb.service", "mariadb", "db-1"]) equal(rootedAt(one, name), true, name);
  for (const name of ["app", "tomcat10", "web-1", "mari", ""]) equal(rootedAt(one, name), false, name);
});

test("a service is found where it is root, between, or dropped", () => {
  for (const name of ["db-1", "tomcat10", "web", "apache2.service"]) equal(goesThrough(one, name), true, name);
  equal(goesThrough(one, "cache"), false);
});

test("what can be chosen are the tiers that are there, each once, and no root that is not known yet", () => {
  deepEqual(rootsOf([one, open, one]), ["db"]);
  deepEqual(servicesOf([one, open]), ["app", "db", "web"]);
});
