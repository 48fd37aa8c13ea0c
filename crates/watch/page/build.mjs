// Bundles the page into dist/, and lists its files for build.rs in dist/assets.tsv. With `--tests` it bundles the tests
// into dist-test/.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { build } from "esbuild";

// The licences that the page's packages may have: the same as deny.toml allows for Rust.
const PERMITTED = ["BSD-3-Clause", "ISC", "MIT"];
const common = { bundle: true, format: "esm", target: "es2022", jsx: "automatic", jsxImportSource: "preact", logLevel: "warning" };

if (process.argv.includes("--tests")) {
  const tests = readdirSync("test").filter((name) => name.endsWith(".test.ts"));
  rmSync("dist-test", { recursive: true, force: true });
  await build({
    ...common,
    entryPoints: tests.map((name) => join("test", name)),
    outdir: "dist-test",
    outExtension: { ".js": ".mjs" },
    platform: "node",
  });
} else {
  await page();
}

async function page() {
  rmSync("dist", { recursive: true, force: true });
  mkdirSync("dist");
  const { metafile } = await build({
    ...common,
    entryPoints: ["src/main.tsx"],
    outdir: "dist",
    entryNames: "page-[hash]",
    minify: true,
    legalComments: "none",
    metafile: true,
  });
  const outputs = Object.keys(metafile.outputs).map((path) => basename(path));
  const named = (end) => outputs.find((name) => name.endsWith(end));
  const icon = hashed("src/icon.svg", "icon", ".svg");
  const html = readFileSync("src/index.html", "utf8")
    .replace("{script}", named(".js"))
    .replace("{style}", named(".css"))
    .replace("{icon}", icon);
  writeFileSync("dist/index.html", html);
  writeFileSync("dist/licences.txt", licences(Object.keys(metafile.inputs)));
  const rows = [
    row("/", "text/html; charset=utf-8", "index.html", false),
    row("/licences.txt", "text/plain; charset=utf-8", "licences.txt", false),
    row(`/${named(".js")}`, "text/javascript; charset=utf-8", named(".js"), true),
    row(`/${named(".css")}`, "text/css; charset=utf-8", named(".css"), true),
    row(`/${icon}`, "image/svg+xml", icon, true),
  ];
  writeFileSync("dist/assets.tsv", rows.join("\n") + "\n");
}

function row(path, type, file, isImmutable) {
  return [path, type, `"${digest(readFileSync(join("dist", file)))}"`, isImmutable, file].join("\t");
}

function digest(content) {
  return createHash("sha256").update(content).digest("hex").slice(0, 16);
}

// Copies a file under a name with a digest of its content.
function hashed(from, name, end) {
  const content = readFileSync(from);
  const to = `${name}-${digest(content)}${end}`;
  writeFileSync(join("dist", to), content);
  return to;
}

// The licence texts of the bundled packages, which every copy has to include.
function licences(inputs) {
  const packages = inputs.map((path) => /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1]);
  const names = [...new Set(packages.filter((name) => name !== undefined))].sort();
  return names.map((name) => `# ${name}\n\n${licence(join("node_modules", name))}`).join("\n\n");
}

function licence(directory) {
  const { license } = JSON.parse(readFileSync(join(directory, "package.json"), "utf8"));
  if (!PERMITTED.includes(license)) throw new Error(`${directory} has the licence ${license}, which is none of ${PERMITTED.join(", ")}`);
  const file = readdirSync(directory).find((name) => /^licen[cs]e/i.test(name));
  if (file === undefined) throw new Error(`${directory} has no licence file`);
  return readFileSync(join(directory, file), "utf8").trim() + "\n";
}
