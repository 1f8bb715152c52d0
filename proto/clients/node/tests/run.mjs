// Runs the tests, or those of the named files. The last line has the counts.

import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { run } from "node:test";
import { spec } from "node:test/reporters";

const folder = fileURLToPath(new URL(".", import.meta.url));
const names = process.argv.slice(2);
const files = readdirSync(folder).filter((name) => name.endsWith(".test.mjs") &&
  (names.length === 0 || names.includes(name))).map((name) => folder + name);
const counts = { passed: 0, failed: 0, skipped: 0 };
const own = ({ name, details }) =>
  details.type !== "suite" && !files.includes(name);
const tests = run({ files, concurrency: 2, timeout: 120_000 });
tests.on("test:pass", (event) => {
  if (own(event)) counts[event.skip === undefined ? "passed" : "skipped"]++;
});
const failed = [];
tests.on("test:fail", ({ name, details, file }) => {
  counts.failed++;
  const why = details.error.failureType;
  if (why !== "subtestsFailed") {
    failed.push(`failed ${(details.duration_ms / 1000).toFixed(2)} s  ` +
      `${file.split("/").at(-1)}: ${name}: ` +
      String(details.error.cause?.message ?? why).split("\n")[0]);
  }
});
tests.on("end", () => {
  process.exitCode = counts.failed > 0 ? 1 : 0;
  process.on("exit", () => console.log([...failed, Object.entries(counts).map(
    ([kind, count]) => `${count} ${kind}`).join(", ")].join("\n")));
});
tests.compose(new spec()).pipe(process.stdout);
