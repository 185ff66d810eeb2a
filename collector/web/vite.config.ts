// One script, one style sheet, one font, under fixed names: the collector embeds them and tags them by content.
import { readFileSync } from "node:fs";
import { defineConfig, type Plugin } from "vite";

/** What is shipped inside the page, and under which licence. */
const SHIPPED = ["preact", "uplot", "@fontsource-variable/inter"];

function licenses(): Plugin {
  return {
    name: "licenses",
    generateBundle() {
      const texts = SHIPPED.map((name) => {
        const { version, license } = JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8"));
        const text = readFileSync(`node_modules/${name}/LICENSE`, "utf8").trim();
        return `${name} ${version} (${license})\n\n${text}\n`;
      });
      const source = `The page contains:\n\n${texts.join(`\n${"-".repeat(78)}\n\n`)}`;
      this.emitFile({ type: "asset", fileName: "licenses.txt", source });
    },
  };
}

export default defineConfig({
  base: "/",
  appType: "spa",
  plugins: [licenses()],
  esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
  build: {
    target: "es2022",
    outDir: process.env["PAGE_OUT"] ?? "dist",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: {
      output: {
        entryFileNames: "page.js",
        assetFileNames: (asset) =>
          asset.names.some((name) => name.endsWith(".css")) ? "page.css" : "inter.woff2",
      },
    },
  },
  // For working on the page: `npx vite` beside a collector on its usual address.
  server: { proxy: { "/api": process.env.COLLECTOR ?? "http://127.0.0.1:4780" } },
});
