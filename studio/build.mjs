// Builds the page into the Python package: one script, one style sheet, one page, no hashes.
import { copyFile, mkdir } from "node:fs/promises";
import { build } from "esbuild";

const to = process.argv[2] ?? "../src/dtdr/serve/studio/static";
await mkdir(to, { recursive: true });
await build({
  entryPoints: { studio: "src/main.tsx" },
  outdir: to,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  logLevel: "warning",
});
for (const [from, name] of [["src/studio.css", "studio.css"], ["src/index.html", "index.html"],
  ["src/icon.svg", "icon.svg"]]) {
  await copyFile(from, `${to}/${name}`);
}
