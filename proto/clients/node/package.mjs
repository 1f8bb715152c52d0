// Marks the two builds: node takes the kind of a module from the nearest
// package.json.
import { writeFileSync } from "node:fs";

for (const [folder, type] of [["esm", "module"], ["cjs", "commonjs"]]) {
  const file = new URL(`dist/${folder}/package.json`, import.meta.url);
  writeFileSync(file, JSON.stringify({ type }) + "\n");
}
