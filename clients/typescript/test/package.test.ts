/** The published and installed package: its files, its types, and the examples of the README. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { LIBRARIES, type Library } from "./clients.js";
import { type Context, startServer } from "./server.js";

const run = promisify(execFile);

// From .build/test.
const ROOT = fileURLToPath(new URL("../..", import.meta.url));

describe("the packed file", () => {
  const folder = mkdtempSync(join(tmpdir(), "bloomgate-"));
  let files: string[];

  before(async () => {
    const { stdout } = await run(process.execPath, [join(ROOT, "package.mjs"), folder]);
    const packed = stdout.trim();
    const list = await run("tar", ["--list", "--file", packed]);
    files = list.stdout
      .trim()
      .split("\n")
      .map((file) => file.replace(/^package\//, ""));
    writeFileSync(join(folder, "package.json"), '{ "private": true, "type": "module" }\n');
    // The libraries are optional; without them nothing is fetched.
    const words = ["install", "--offline", "--no-audit", "--no-fund", "--ignore-scripts", packed];
    await run("npm", words, { cwd: folder });
  });
  after(() => rmSync(folder, { recursive: true }));

  test("has the sources, the compiled files, the licences, and nothing else", () => {
    const names = readdirSync(join(ROOT, "src")).map((file) => file.replace(/\.ts$/, ""));
    const compiled = ["js", "js.map", "d.ts", "d.ts.map"];
    const expected = ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "package.json", ...names.map((name) => `src/${name}.ts`)];
    for (const name of names) expected.push(...compiled.map((suffix) => `dist/${name}.${suffix}`));
    assert.deepEqual([...files].sort(), expected.sort());
    for (const licence of ["LICENSE-MIT", "LICENSE-APACHE"]) {
      const installed = readFileSync(join(folder, "node_modules", "bloomgate", licence), "utf8");
      assert.equal(installed, readFileSync(join(ROOT, "../..", licence), "utf8"));
    }
    const manifest = JSON.parse(readFileSync(join(folder, "node_modules", "bloomgate", "package.json"), "utf8"));
    assert.equal(manifest.scripts, undefined, "npm warns of scripts");
  });

  test("has a README whose links work outside the repository", () => {
    const readme = readFileSync(join(folder, "node_modules", "bloomgate", "README.md"), "utf8");
    const headings = [...readme.matchAll(/^## (.*)$/gm)].map(([, text]) => `#${text?.toLowerCase().replaceAll(" ", "-")}`);
    const links = [...readme.matchAll(/\]\(([^)]*)\)/g)].map(([, link]) => String(link));
    assert.ok(links.some((link) => link.endsWith("/blob/main/docs/guard.md")));
    assert.ok(links.some((link) => link.endsWith("/blob/main/clients/typescript/examples/web-service.ts")));
    for (const link of links) assert.ok(link.startsWith("https://") || headings.includes(link), link);
  });

  test("is installed from a clone as its README says", async (context) => {
    const readme = readFileSync(join(ROOT, "README.md"), "utf8");
    const [, command = ""] = /^npm (install .* CLONE\/clients\/typescript)$/m.exec(readme) ?? [];
    const empty = mkdtempSync(join(tmpdir(), "bloomgate-"));
    context.after(() => rmSync(empty, { recursive: true }));
    const clone = join(empty, "clone");
    const made = ["node_modules", "dist", ".build"];
    cpSync(ROOT, join(clone, "clients", "typescript"), { recursive: true, filter: (path) => !made.includes(basename(path)) });
    const env = { ...process.env, npm_config_prefer_offline: "true" };
    await run("npm", command.replace("CLONE", clone).split(" "), { cwd: empty, env });
    const script = 'import { connect } from "bloomgate/redis"; console.log(typeof connect);';
    const { stdout } = await run(process.execPath, ["--input-type=module", "--eval", script], { cwd: empty });
    assert.equal(stdout, "function\n");
  });

  test("can be required", { skip: !process.features.require_module && "this Node cannot require ES modules" }, async () => {
    const script = 'console.log(typeof require("bloomgate").Filter);';
    const { stdout } = await run(process.execPath, ["--input-type=commonjs", "--eval", script], { cwd: folder });
    assert.equal(stdout, "function\n");
  });

  test("does not import a client library at the start", async () => {
    const script = 'import { Filter } from "bloomgate"; console.log(typeof Filter);';
    const { stdout } = await run(process.execPath, ["--input-type=module", "--eval", script], { cwd: folder });
    assert.equal(stdout, "function\n");
  });

  test("has types", async () => {
    const lines = [
      'import { Filter, Guard, Json, type Client } from "bloomgate";',
      "declare const client: Client;",
      'const guard = new Guard(client, "users", { codec: new Json<{ name: string }>(), ttl: 60 });',
      'export const name: Promise<string | undefined> = guard.get(17, () => ({ name: "Ann" })).then((row) => row?.name);',
      'const users = new Map([[17, { name: "Ann" }]]);',
      'const loading = new Guard(client, "users", { codec: new Json<{ name: string }>(), load: (id) => users.get(id) });',
      "export const loaded: Promise<string | undefined> = loading.get(17).then((row) => row?.name);",
      "// An option may be undefined.",
      "const none = undefined;",
      "export const same = guard.get(17, () => null, { ttl: none, signal: none });",
      'export const plain = new Guard(client, "users", { ttl: none, near: none, warn: none, codec: none });',
      'export const made = new Filter(client, "seen", { create: none }).reserve(0.1, 1, { window: none, existOk: none });',
      'export const bytes: Promise<Uint8Array | null> = new Guard(client, "rows").get(17, () => Uint8Array.of(1));',
      'export const isNew: Promise<boolean> = new Filter(client, "seen").add("a");',
      "// @ts-expect-error: values that are no bytes need a codec.",
      'export const wrong = new Guard<{ name: string }>(client, "users");',
      "// @ts-expect-error: there is no such option.",
      'export const unknown = new Guard(client, "users", { colour: "red" });',
    ];
    writeFileSync(join(folder, "consumer.ts"), `${lines.join("\n")}\n`);
    writeFileSync(
      join(folder, "consumer.cts"),
      'import { Filter } from "bloomgate";\nexport const name: string = Filter.name;\n',
    );
    linkPackages("@types/node", "undici-types");
    const compiler = join(ROOT, "node_modules", "typescript", "bin", "tsc");
    const words = [
      "--strict",
      "--exactOptionalPropertyTypes",
      "--noEmit",
      "--skipLibCheck",
      "--target",
      "es2022",
      "--module",
      "nodenext",
      "--types",
      "node",
      "consumer.ts",
      "consumer.cts",
    ];
    const { stdout } = await run(process.execPath, [compiler, "--ignoreConfig", ...words], { cwd: folder }).catch(
      (error) => error,
    );
    assert.equal(stdout, "");
  });

  for (const library of LIBRARIES) {
    test(`runs the examples of its pages twice with ${library}`, async (context) => {
      linkPackages(library);
      await runPage(context, library, join(folder, "node_modules", "bloomgate", "README.md"));
      await runPage(context, library, join(ROOT, "examples/README.md"));
    });
  }

  async function runPage(context: Context, library: Library, page: string): Promise<void> {
    const server = await startServer(context);
    const blocks = [...readFileSync(page, "utf8").matchAll(/^```js\n(.*?)^```/gms)].map(([, block]) => block);
    assert.ok(blocks.length > 0);
    let script = blocks.join("\n").replace("redis://localhost:6379", server.url);
    if (library === "ioredis")
      script = script.replace('"bloomgate/redis"', '"bloomgate/ioredis"').replace("destroy()", "disconnect()");
    writeFileSync(join(folder, `${library}.js`), script);
    for (let time = 0; time < 2; time++) {
      // The process exits by itself: no connection keeps it alive.
      const { stderr } = await run(process.execPath, [`${library}.js`], { cwd: folder });
      assert.equal(stderr, "");
    }
  }

  /** Makes packages that are installed for the tests available to the packed one. */
  function linkPackages(...names: string[]): void {
    for (const name of names) {
      const link = join(folder, "node_modules", name);
      mkdirSync(join(link, ".."), { recursive: true });
      symlinkSync(join(ROOT, "node_modules", name), link);
    }
  }
});
