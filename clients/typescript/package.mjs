/** Packs the published package: `node package.mjs [FOLDER]`, after `npm run build`. The README's links, which are relative in
 * the repository, become absolute in the package, because npm shows the page. Writes the file into FOLDER, and prints its
 * path. */

import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL(".", import.meta.url));
const staged = join(root, ".build", "package");
const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const destination = resolve(process.argv[2] ?? root);

rmSync(staged, { recursive: true, force: true });
mkdirSync(staged, { recursive: true });
for (const name of ["package.json", ...manifest.files]) cpSync(join(root, name), join(staged, name), { recursive: true });
// npm warns about packages with a script such as `prepare`, which only a clone needs.
const { scripts, ...published } = manifest;
writeFileSync(join(staged, "package.json"), `${JSON.stringify(published, null, 2)}\n`);
const readme = readFileSync(join(root, "README.md"), "utf8");
const absolute = readme.replace(/\]\((?!https?:|#)([^)\s]+)\)/g, (_, link) => `](${new URL(link, manifest.homepage)})`);
writeFileSync(join(staged, "README.md"), absolute);

const words = ["pack", "--ignore-scripts", "--loglevel", "error", "--pack-destination", destination];
const name = execFileSync("npm", words, { cwd: staged, encoding: "utf8" }).trim();
console.log(join(destination, name));
