/** PostgreSQL for a test, in a separate folder, with only a Unix socket. Its programs must be on the PATH. */

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chownSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { type Context, eventually } from "./server.js";

export async function startPostgres(context: Context): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "bloomgate-pg-"));
  const isRoot = process.getuid?.() === 0;
  const id = (flag: string) => Number(execFileSync("id", [flag, "postgres"]).toString());
  // PostgreSQL refuses to run as root.
  const user = isRoot ? { uid: id("-u"), gid: id("-g") } : {};
  if (user.uid !== undefined) chownSync(folder, user.uid, user.gid ?? 0);
  const options = { cwd: folder, env: { ...process.env, LC_ALL: "C" }, ...user };
  const words = ["-D", "data", "-U", "guard", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"];
  execFileSync("initdb", words, { ...options, stdio: "ignore" });
  const settings = ["fsync=off", "listen_addresses=", `unix_socket_directories=${folder}`];
  const server = spawn("postgres", ["-D", "data", ...settings.flatMap((setting) => ["-c", setting])], {
    ...options,
    stdio: "ignore",
  });
  context.after(async () => {
    const ended = once(server, "exit");
    server.kill("SIGKILL");
    await ended;
    rmSync(folder, { recursive: true });
  });
  const url = `postgres://guard@${encodeURIComponent(folder)}/postgres`;
  await eventually("PostgreSQL", async () => {
    const probe = new pg.Client({ connectionString: url });
    probe.on("error", () => {});
    try {
      await probe.connect();
      await probe.end();
      return true;
    } catch {
      return false;
    }
  });
  return url;
}
