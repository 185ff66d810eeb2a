// Runs the unit tests of the page's pure parts: bundles each src/*.test.ts for Node and hands it to Node's own test runner.
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const out = mkdtempSync(join(tmpdir(), "page-unit-"));
const entryPoints = readdirSync("src").filter((name) => name.endsWith(".test.ts")).map((name) => join("src", name));
await build({ entryPoints, bundle: true, platform: "node", format: "esm", outdir: out, outExtension: { ".js": ".mjs" }, logLevel: "warning" });
// By name: what a folder as an argument means differs between versions of Node.
const files = readdirSync(out).map((name) => join(out, name));
const { status } = spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit" });
rmSync(out, { recursive: true });
process.exit(status ?? 1);
