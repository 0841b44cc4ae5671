/**
 * An end in order takes no longer than an operator waits, whatever program is under way and however slow it is.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import { type Netns, withNetns } from "../support/netns.ts";
import { assertWithin } from "../support/busyness.ts";
import { WEB_NEEDS, WEB_SERVICE, WebLab, webSlice } from "../support/lab_web.ts";
import { readUnlessGone } from "../support/processes.ts";
import { e2eTest, program } from "../support/skip.ts";
import { StubProgram } from "../support/stub_program.ts";

/** Three times what a quiet machine shows, and far less than the programs take here. */
const LIMIT_MS = 3_500;
/** Likewise: what a folder's watch that does not answer any more is given to end in. */
const FIFO_LIMIT_MS = 13_000;
const READY = "First sync done, Services are served";

interface SlowCase {
  readonly when: string;
  readonly mode: string;
  /** The program that never ends, and for which arguments. */
  readonly name: string;
  readonly args: string;
  /** What the log says before it is started, how often. */
  readonly after: readonly [message: string, times: number];
  /** What the log says of what was not finished. */
  readonly says: string;
}

const CASES: readonly SlowCase[] = [
  {
    when: "the node is prepared",
    mode: "iptables",
    name: "iptables-nft-save",
    args: "*",
    after: ["Starting", 1],
    says: "Stopping, rules stay in place",
  },
  {
    when: "the first sync is under way",
    mode: "iptables",
    name: "iptables-restore",
    args: "*--counters*",
    after: ["Manifests read", 1],
    says: "Left a sync unfinished, the next start writes everything",
  },
  {
    when: "the first sync is under way",
    mode: "nftables",
    name: "nft",
    args: "-f*",
    after: ["Manifests read", 1],
    says: "Left a sync unfinished, the next start writes everything",
  },
  {
    when: "what other modes left is looked for",
    mode: "iptables",
    name: "ipset",
    args: "list*",
    after: [READY, 2],
    says: "Stopped looking for what other modes left, the next start goes on with it",
  },
];

for (const { when, mode, name, args, after: [message, times], says } of CASES) {
  e2eTest(`SIGTERM while ${when}, in mode ${mode}, by a ${name} that never ends`, [
    ...WEB_NEEDS,
    program(name),
  ], async () => {
    await using web = await WebLab.create();
    await using bin = await StubProgram.create(name, args, "exec sleep 600");
    await using kproxy = KproxyProcess.spawn({
      ...web.options([`--proxy-mode=${mode}`]),
      path: bin.folder,
    });
    await kproxy.until(message, (lines) => lines.filter(({ msg }) => msg === message).length >= times);
    const pid = await bin.started();
    const startMs = performance.now();
    const { code } = await kproxy.stop("SIGTERM");
    const tookMs = performance.now() - startMs;
    assertEquals(code, 0, kproxy.log);
    await assertWithin(tookMs, LIMIT_MS, `the end:\n${kproxy.log}`);
    assert(kproxy.lines.some(({ msg }) => msg === says), kproxy.log);
    assertEquals(await isGone(pid), true, "the program was left behind");
    const complaints = kproxy.lines.filter(({ msg }) => /^(Cannot|Sync failed|Ending without)/.test(msg));
    assertEquals(complaints, [], kproxy.log);
  });
}

/** A kproxy with nothing to serve, in a namespace of its own. */
async function withBareNode(
  args: readonly string[],
  work: (kproxy: KproxyProcess, manifests: LabManifests, netns: Netns) => Promise<void>,
): Promise<void> {
  await using manifests = await LabManifests.create();
  await withNetns(async (netns) => {
    const options = [`--manifests=${manifests.folder}`, "--hostname-override=node-a", ...args];
    // A file that is given says itself how much is logged.
    const verbosity = args.length === 0 ? 2 : null;
    await using kproxy = KproxyProcess.spawn({ netns, args: options, verbosity });
    await work(kproxy, manifests, netns);
  });
}

for (const message of ["Starting", "Watching", READY]) {
  e2eTest(`SIGTERM again and again from "${message}" on ends with status 0`, WEB_NEEDS, async () => {
    await withBareNode([], async (kproxy) => {
      await kproxy.untilMessage(message);
      const timer = setInterval(() => kproxy.kill("SIGTERM"), 2);
      const { code, signal } = await kproxy.stop("SIGTERM");
      clearInterval(timer);
      assertEquals([code, signal], [0, null], kproxy.log);
      const stopping = kproxy.lines.filter(({ msg }) => msg === "Stopping, rules stay in place");
      assertEquals(stopping.length, 1, kproxy.log);
    });
  });
}

e2eTest(
  "SIGHUP has the configuration file read again, and ends who has none, as SIGINT does",
  WEB_NEEDS,
  async () => {
    for (const signal of ["SIGHUP", "SIGINT"] as const) {
      await withBareNode([], async (kproxy, _manifests, netns) => {
        await kproxy.untilServing();
        assertEquals((await kproxy.stop(signal)).code, 0, kproxy.log);
        assertStringIncludes(await netns.run(["iptables-save"]), "KUBE-SERVICES");
        const last = kproxy.lines.find(({ msg }) => msg === "Stopping, rules stay in place");
        assertEquals(last?.["signal"], signal, kproxy.log);
      });
    }
    const file = await Deno.makeTempFile({ prefix: "kproxy-config-", suffix: ".yaml" });
    try {
      const text =
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nlogging: {verbosity: 2}\n";
      await Deno.writeTextFile(file, text);
      await withBareNode([`--config=${file}`], async (kproxy) => {
        await kproxy.untilMessage(READY);
        kproxy.kill("SIGHUP");
        await kproxy.untilMessage("Reading the configuration file again");
        await kproxy.untilMessage("Configuration file has not changed");
        await Deno.writeTextFile(file, text.replace("2", "3"));
        kproxy.kill("SIGHUP");
        await kproxy.untilMessage("Configuration changed, in force now");
        assertEquals((await kproxy.stop()).code, 0, kproxy.log);
      });
    } finally {
      await Deno.remove(file);
    }
  },
);

const UNANSWERED = "Watches of folders do not answer any more, polling instead";

e2eTest("a FIFO that came and went beside the manifests keeps no change, no reload and no end away", [
  ...WEB_NEEDS,
  program("mkfifo"),
], async () => {
  const file = await Deno.makeTempFile({ prefix: "kproxy-config-", suffix: ".yaml" });
  const configure = (masqueradeAll: boolean): Promise<void> =>
    Deno.writeTextFile(
      file,
      "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nlogging: {verbosity: 2}\n" +
        `iptables: {masqueradeAll: ${masqueradeAll}}\n`,
    );
  try {
    await configure(false);
    await withBareNode([`--config=${file}`], async (kproxy, manifests) => {
      await kproxy.untilServing();
      const isUnanswered = () => kproxy.lines.some(({ msg }) => msg === UNANSWERED);
      // How long is right depends on the machine, from moment to moment.
      for (let tries = 0; tries < 32 && !isUnanswered(); tries++) {
        await comeAndGo(manifests.path("fifo.yaml"), 20 * 2 ** (tries % 8));
        for (let waits = 0; waits < 80 && !isUnanswered(); waits++) await sleep(100);
      }
      assert(isUnanswered(), kproxy.log);
      await kproxy.change(() => manifests.replace("web.json", [WEB_SERVICE]), "shop/web");
      await kproxy.anew(() => configure(true));
      await kproxy.change(
        () => manifests.replace("endpoints.json", [webSlice(["10.244.0.2"])]),
        "shop/web",
      );
      const startMs = performance.now();
      const { code } = await kproxy.stop("SIGTERM");
      const tookMs = performance.now() - startMs;
      assertEquals(code, 0, kproxy.log);
      await assertWithin(tookMs, FIFO_LIMIT_MS, kproxy.log);
    });
  } finally {
    await Deno.remove(file);
  }
});

/**
 * The runtime opens it at once, which never ends if no process opens its other end until it is gone. It must be there long enough for a
 * thread of a busy machine to wake up, and be gone before kproxy looks and holds it.
 */
async function comeAndGo(path: string, livesMs: number): Promise<void> {
  const { success } = await new Deno.Command("mkfifo", { args: [path] }).output();
  assert(success);
  await sleep(livesMs);
  await Deno.remove(path);
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** True if the process ends: a signal that was sent takes its time on a busy machine. */
async function isGone(pid: number): Promise<boolean> {
  for (let tries = 0; tries < 10_000; tries++) {
    if (!await isRunning(pid)) return true;
    await sleep(20);
  }
  return false;
}

/** A process that is dead but not reaped does not run. */
async function isRunning(pid: number): Promise<boolean> {
  const stat = await readUnlessGone(`/proc/${pid}/stat`);
  return stat !== "" && stat.slice(stat.lastIndexOf(")") + 2)[0] !== "Z";
}
