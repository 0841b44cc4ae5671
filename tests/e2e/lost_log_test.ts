/**
 * A log without a reader: the reader may go, stop reading, or have a full disk, and the node is served on.
 *
 * @module
 */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import { WEB_NEEDS, WEB_PODS, WebLab, webSlice } from "../support/lab_web.ts";
import { e2eTest, program } from "../support/skip.ts";
import { until } from "../support/until.ts";
import { CLUSTER } from "../support/web_changes.ts";

const [A, B, C] = WEB_PODS;

interface LostLog {
  readonly how: string;
  /** How the shell starts kproxy, and where its standard error goes; `$FIFO` is a pipe with a name. */
  readonly shell: string;
  /** True if the test opens the pipe's other end, and closes it once kproxy serves. */
  readonly readerGoes?: true;
  /** True if lines are dropped at once, and not only when many wait. */
  readonly isCounted?: true;
}

const CASES: readonly LostLog[] = [
  { how: "its reader goes", shell: 'exec "$@" 2>"$FIFO"', readerGoes: true, isCounted: true },
  { how: "the disk is full", shell: 'exec "$@" 2>/dev/full', isCounted: true },
  // Opened for both: there is a reader for ever, and it never reads. The pipe holds no byte more.
  { how: "its reader does not read", shell: 'exec 2<>"$FIFO"; head -c 65536 /dev/zero >&2; exec "$@"' },
];

/** What curl gets, from the node itself. */
async function ask(web: WebLab, at: string): Promise<string> {
  const curl = ["curl", "-sf", "--max-time", "60", "--noproxy", "*", `http://127.0.0.1:${at}`];
  return (await web.lab.node.netns.exec.run(curl)).stdout;
}

e2eTest(
  "kproxy serves on without its log, counts the lines, and ends in order",
  [...WEB_NEEDS, program("curl"), program("mkfifo")],
  async (t) => {
    await using web = await WebLab.create();
    // Not among the manifests: kproxy holds what it finds there open itself.
    await using folder = await LabManifests.create();
    const fifo = folder.path("log");
    await new Deno.Command("mkfifo", { args: [fifo] }).output();
    for (const { how, shell, readerGoes, isCounted } of CASES) {
      await t.step(how, async () => {
        await web.manifests.replace("broken.json", []);
        await web.manifests.replace("endpoints.json", [webSlice([A, B])]);
        const prefix = ["env", `FIFO=${fifo}`, "sh", "-c", shell, "sh"];
        await using kproxy = KproxyProcess.spawn({
          ...web.options(),
          as: { prefix, deno: Deno.execPath() },
        });
        const reader = readerGoes ? await Deno.open(fifo) : null;
        await until(async () => (await web.answering(CLUSTER, 10_000)).join(" ") === `${A} ${B}`, "serving");
        reader?.close();
        // Whatever else is told: this is an error in the log.
        await web.manifests.replaceText("broken.json", "{");
        for (const pods of [[C], [A, C], [B]]) {
          await web.manifests.replace("endpoints.json", [webSlice(pods)]);
          await until(
            async () => (await web.answering(CLUSTER, 10_000)).join(" ") === pods.join(" "),
            `serving ${pods}`,
          );
        }
        const dropped = async () =>
          Number(/^kproxy_log_lines_dropped_total (\d+)$/m.exec(await ask(web, "10249/metrics"))?.[1]);
        if (isCounted) await until(async () => await dropped() > 0, "lines that are dropped count");
        assertStringIncludes(await ask(web, "10256/readyz"), '"ready":true');
        assertEquals((await kproxy.stop()).code, 0);
      });
    }
  },
);
