/**
 * The wall clock is set by hours while kproxy runs, as by a time server, or while it stands still, as in a suspend: changes are in force as
 * fast as before, those made meanwhile too, health says so, and the log has the new time. kproxy's own clock is set, by libfaketime; that
 * of the kernel goes on.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { runOk, systemExec } from "../../lib/kernel/exec.ts";
import { runtimeFlags } from "../../tools/permissions.ts";
import { ROOT } from "../../tools/project_files.ts";
import { service } from "../flows/objects.ts";
import { httpGet } from "../support/http_get.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { NFTABLES } from "../support/lab_mode.ts";
import { WEB_NEEDS, WebLab } from "../support/lab_web.ts";
import { e2eTest, program } from "../support/skip.ts";
import { eventually } from "../support/until.ts";
import { CLUSTER } from "../support/web_changes.ts";

const HEALTHZ = "http://127.0.0.1:10256/healthz";
const HOUR_MS = 3_600_000;
/** The library looks at its file once a second, and two clocks are compared. */
const TOLERANCE_MS = 60_000;
/** Longer than the limits of one request or one program that may be under way. */
const SUSPENDED_MS = 15_000;
/** How the clock is set, one after another, and whether kproxy stands still meanwhile. */
const JUMPS: readonly { readonly offsetMs: number; readonly isSuspended: boolean }[] = [
  { offsetMs: 5 * HOUR_MS, isSuspended: false },
  { offsetMs: -7 * HOUR_MS, isSuspended: false },
  { offsetMs: HOUR_MS, isSuspended: true },
  { offsetMs: 0, isSuspended: false },
];

/** A clock of programs, which a file sets. */
async function clockOf(file: string): Promise<readonly string[]> {
  const library = (await runOk(systemExec, ["faketime", "-m", "now", "printenv", "LD_PRELOAD"])).trim();
  const settings = [`TIMESTAMP_FILE=${file}`, "CACHE_DURATION=1", "DONT_FAKE_MONOTONIC=1"];
  return ["env", `LD_PRELOAD=${library}`, ...settings.map((setting) => `FAKETIME_${setting}`)];
}

/** As shipped, but that the runtime lets a program with `LD_PRELOAD` start others only where it may start all. */
function flags(): readonly string[] {
  return [...runtimeFlags().filter((flag) => !flag.startsWith("--allow-run")), "--allow-run"];
}

// No mode reads a clock: one of them is enough.
e2eTest(
  "a wall clock that is set by hours, forward and back, keeps no change from being in force",
  [...WEB_NEEDS, ...NFTABLES.needs, program("faketime"), program("curl")],
  async (t) => {
    await using web = await WebLab.create(NFTABLES);
    const { netns } = web.lab.node;
    const file = `${web.manifests.folder}/../${netns.name}.clock`;
    const set = (offsetMs: number): Promise<void> =>
      Deno.writeTextFile(file, `${offsetMs < 0 ? "-" : "+"}${Math.abs(offsetMs) / 1000}\n`);
    await set(0);
    const run = ["run", "--logging-format=json", "--v=2", "--socket=", ...web.options().args];
    const deno = [Deno.execPath(), "run", "-q", "--config", `${ROOT}/deno.json`, ...flags()];
    const command = [...await clockOf(file), ...deno, `${ROOT}/start.ts`, ...run];
    try {
      await using kproxy = await KproxyProcess.start({ netns, args: [], command });
      const loop = await web.loop(web.pod, CLUSTER);
      for (const [index, { offsetMs, isSuspended }] of JUMPS.entries()) {
        await t.step(`to ${offsetMs / HOUR_MS} h${isSuspended ? ", during a suspend" : ""}`, async () => {
          const name = `shop/jump-${index}`;
          const more = service(name, { clusterIP: `10.96.0.${10 + index}`, ports: ["http:80"] });
          const edit = (): Promise<void> => web.manifests.replace("more.json", [more]);
          const isSet = (ms: number): boolean => Math.abs(ms - Date.now() - offsetMs) < TOLERANCE_MS;
          const lines = await kproxy.change(async () => {
            if (isSuspended) kproxy.kill("SIGSTOP");
            await set(offsetMs);
            if (isSuspended) {
              await edit();
              await new Promise((resolve) => setTimeout(resolve, SUSPENDED_MS));
              kproxy.kill("SIGCONT");
            }
            await eventually(async () => {
              const { body } = await httpGet(netns, HEALTHZ);
              assert(isSet(Date.parse((JSON.parse(body) as { currentTime: string }).currentTime)), body);
            }, { everyMs: 200 });
            if (!isSuspended) await edit();
          }, name);
          assert(isSet(Number(lines.at(-1)?.["ts"])), JSON.stringify(lines.at(-1)));
          assertEquals((await httpGet(netns, HEALTHZ)).status, 200);
        });
      }
      await loop.stopUnbroken();
      assertEquals(kproxy.lines.filter(({ msg }) => /failed|stuck/i.test(msg)), []);
      assertEquals((await kproxy.stop()).code, 0);
    } finally {
      await Deno.remove(file);
    }
  },
);
