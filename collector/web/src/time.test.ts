import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";
import { clock, day, fromAddress, fromField, length, msOf, nsOf, span, tick, toAddress, toField } from "./time";

const AT = 1_795_271_939_100; // 2026-11-21 14:38:59.100 UTC

test("a window's start survives the way through a JSON number", () => {
  for (let window = 35_905_438_782; window < 35_905_438_882; window += 1) {
    const ns = JSON.parse(String(BigInt(window) * 50_000_000n)) as number;
    equal(nsOf(msOf(ns)), String(BigInt(window) * 50_000_000n));
  }
});

test("moments read as UTC with milliseconds", () => {
  equal(day(AT, "utc"), "2026-11-21");
  equal(clock(AT, "utc"), "14:38:59.100");
  deepEqual([tick(AT, "utc", 50), tick(AT, "utc", 1000), tick(AT, "utc", 60_000)], ["38:59.100", "14:38:59", "14:38"]);
});

test("what a person writes is understood, with what is left out", () => {
  equal(fromField(toField(AT, "utc"), "utc", 0), AT);
  equal(fromField("14:38:59,1", "utc", AT), AT);
  equal(fromField("14:38", "utc", AT), AT - 59_100);
  equal(fromField("-10m", "utc", AT), AT - 600_000);
  equal(fromField("2026-11-21 14:38:59.100Z", "local", 0), AT);
  deepEqual([fromField("tomorrow", "utc", AT), fromField("25:99", "utc", AT), fromField("2026-13-01 10:00", "utc", AT)], [null, null, null]);
});

test("addresses take ISO, milliseconds and nanoseconds", () => {
  equal(fromAddress(toAddress(AT)), AT);
  equal(fromAddress(String(AT)), AT);
  equal(fromAddress(`${AT}000000`), AT);
  deepEqual([fromAddress(null), fromAddress("x"), span("15m"), span("1w")], [null, null, 900_000, null]);
});

test("lengths", () => {
  deepEqual([850, 1250, 60_000, 200_000, 7_500_000].map(length), ["850 ms", "1.25 s", "1 min", "3 min 20 s", "2 h 5 min"]);
});
