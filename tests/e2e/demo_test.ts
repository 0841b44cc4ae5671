import { assert, assertEquals, assertMatch } from "@std/assert";
import { signalChild } from "../../tools/end_programs.ts";
import { ROOT } from "../../tools/project_files.ts";
import { busyness } from "../support/busyness.ts";
import { childrenWith, readUnlessGone } from "../support/processes.ts";
import { e2eTest, need, program, ROOT_NAMESPACES } from "../support/skip.ts";

const NEEDS = [ROOT_NAMESPACES, program("iptables"), program("nft"), program("ip"), program("sysctl")];
/** How long the demo may take where {@linkcode busyness} is 1. */
const LIMIT_MS = 30_000;

/** A running demo and what it has written so far. */
class Demo implements AsyncDisposable {
  readonly pid: number;
  readonly #child: Deno.ChildProcess;
  readonly #reading: Promise<void>[];
  readonly ended: Promise<number>;
  out = "";
  err = "";

  constructor(
    args: readonly string[] = ["run", "-A", "-q", `${ROOT}/tools/demo.ts`],
    env: Record<string, string> = {},
  ) {
    this.#child = new Deno.Command(Deno.execPath(), {
      args: [...args],
      env,
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
    this.pid = this.#child.pid;
    this.#reading = [
      this.#read(this.#child.stdout, (text) => this.out += text),
      this.#read(this.#child.stderr, (text) => this.err += text),
    ];
    this.ended = this.#end();
  }

  /** Resolves once standard output shows `text`; fails if the demo ends before. */
  async shows(text: string): Promise<void> {
    let code: number | undefined;
    void this.ended.then((value) => code = value);
    while (!this.out.includes(text)) {
      assertEquals(code, undefined, `The demo ended before it showed "${text}":\n${this.said}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** What it says, the reasons of a failure first: a long message loses its middle. */
  get said(): string {
    const reasons = this.out.indexOf("Not as it should be");
    return `${this.err}${reasons < 0 ? "" : this.out.slice(reasons)}\n${this.out}`;
  }

  kill(signal: Deno.Signal): void {
    this.#child.kill(signal);
  }

  /** The only child of the demo whose command line holds `words`. */
  async childWith(words: string): Promise<number> {
    const found = await childrenWith(this.pid, words);
    assertEquals(found.length, 1, `Children with "${words}": ${found}`);
    return found[0] ?? 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    signalChild(this.#child, "SIGTERM");
    await this.ended;
  }

  async #read(stream: ReadableStream<Uint8Array>, take: (text: string) => void): Promise<void> {
    const decoder = new TextDecoder();
    for await (const chunk of stream) take(decoder.decode(chunk, { stream: true }));
  }

  async #end(): Promise<number> {
    const { code } = await this.#child.status;
    await Promise.all(this.#reading);
    return code;
  }
}

const LEGACY_TABLES = need("legacy iptables", "a kernel and programs with legacy iptables", () => {
  const { success, stderr } = new Deno.Command("unshare", {
    args: ["--net", "iptables-legacy-save", "-t", "nat"],
    stdin: "null",
  }).outputSync();
  return success ? undefined : new TextDecoder().decode(stderr).trim();
});
const USER_NAMESPACES = need("user namespaces", "a kernel that lets users make them", () => {
  const { success, stderr } = new Deno.Command("unshare", {
    args: ["--user", "--map-root-user", "--net", "--mount", "true"],
    stdin: "null",
  }).outputSync();
  return success ? undefined : new TextDecoder().decode(stderr).trim();
});

/** Runs a program in the namespace of the demo's node. */
async function onNode(demo: Demo, ...argv: string[]): Promise<void> {
  const node = `kpdemo-${demo.pid}-node`;
  const { code, stderr } = await new Deno.Command("ip", { args: ["netns", "exec", node, ...argv] }).output();
  assertEquals(code, 0, new TextDecoder().decode(stderr));
}

/** Namespaces, programs and folders of one demo that are still there. */
async function leftOf(pid: number): Promise<string[]> {
  const prefix = `kpdemo-${pid}-`;
  const left: string[] = [];
  for (const folder of ["/run/netns", "/var/run/netns", Deno.env.get("TMPDIR") ?? "/tmp"]) {
    try {
      for await (const { name } of Deno.readDir(folder)) if (name.startsWith(prefix)) left.push(name);
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
  }
  for await (const { name } of Deno.readDir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const argv = await readUnlessGone(`/proc/${name}/cmdline`);
    if (argv.includes(prefix)) left.push(argv.replaceAll("\0", " "));
  }
  return left;
}

e2eTest("the demo shows the main job within 30 s, in plain text, and leaves nothing", NEEDS, async () => {
  const before = await busyness();
  const startedMs = performance.now();
  await using demo = new Demo();
  assertEquals(await demo.ended, 0, demo.said);
  const tookMs = performance.now() - startedMs;
  const limitMs = LIMIT_MS * Math.max(before, await busyness());
  assert(tookMs < limitMs, `${tookMs} of ${limitMs} ms`);
  const wanted = [
    /^60 requests to the ClusterIP 10\.96\.0\.10:80; .*\n( {2}web-[123] +\d+ #+ +\d+ KUBE-SEP-\w{16}\n){3}\n/m,
    /^60 requests to the NodePort 198\.51\.100\.10:30080; .*\n( {2}web-[123] +\d+ #+ +\d+ KUBE-SEP-\w{16}\n){3}\n/m,
    /^ {2}first sync +IPv4: \d+ rules in [\d.]+ ms$/m,
    /^ {2}- web-2 +edit to kernel [\d.]+ m?s \(/m,
    /^ {2}\+ web-4 +edit to kernel [\d.]+ m?s \(/m,
    /^ {2}connections +\d+ made, 0 failed, 0 SYNs lost, the slowest took [\d.]+ ms$/m,
    /^ {2}60 requests +web-1 \d+, web-3 \d+, web-4 \d+$/m,
    /^ {2}IPv4 +nothing left: iptables-save shows no chain and no rule$/m,
    /^All as it should be, in [\d.]+ s; namespaces, programs and files are gone$/m,
  ];
  for (const pattern of wanted) assertMatch(demo.out, pattern);
  // deno-lint-ignore no-control-regex -- escape codes and carriage returns are what must not be there.
  assertEquals(/[\x1b\r]/.test(demo.out + demo.err), false, "Escape codes in a pipe");
  assertEquals(demo.err, "");
  assertEquals(demo.out.split("\n").filter((line) => line.length > 79), [], "Lines wider than a terminal");
  const made = Number(/(\d+) made/.exec(demo.out)?.[1]);
  const seconds = Number(/in ([\d.]+) s;/.exec(demo.out)?.[1]);
  assert(made > 400 && seconds < limitMs / 1000, `${made} connections, ${seconds} s`);
  assertEquals(await leftOf(demo.pid), []);
});

e2eTest("the demo fails when a SYN is lost, and when the cleanup leaves something", NEEDS, async () => {
  await using demo = new Demo();
  await demo.shows("Edits, under");
  // A chain in the place of one that kproxy would forget.
  await onNode(demo, "iptables", "-t", "nat", "-N", "KUBE-FORGOTTEN");
  const lossy = "FORWARD -p tcp --syn -m statistic --mode nth --every 20 --packet 0 -j DROP".split(" ");
  await onNode(demo, "iptables", "-t", "mangle", "-I", ...lossy);
  await new Promise((resolve) => setTimeout(resolve, 500));
  await onNode(demo, "iptables", "-t", "mangle", "-D", ...lossy);
  assertEquals(await demo.ended, 1, demo.said);
  assertMatch(demo.out, /^ {2}connections +\d+ made, 0 failed, [1-9]\d* SYNs lost, /m);
  assertMatch(demo.out, /^ {2}the edits: [1-9]\d* SYNs were lost$/m);
  assertMatch(demo.out, /^ {2}Left after the cleanup, IPv4: nat :KUBE-FORGOTTEN -$/m);
  assertEquals(await leftOf(demo.pid), []);
});

for (const [signal, status] of [["SIGINT", 130], ["SIGTERM", 143]] as const) {
  e2eTest(`${signal} under load ends the demo with ${status} and leaves nothing`, NEEDS, async () => {
    await using demo = new Demo();
    await demo.shows("Edits, under");
    demo.kill(signal);
    assertEquals(await demo.ended, status, demo.said);
    assertMatch(demo.err, new RegExp(`^Stopped by ${signal}\n$`));
    assertEquals(await leftOf(demo.pid), []);
  });
}

e2eTest("a signal while the network is made leaves nothing", NEEDS, async () => {
  await using demo = new Demo();
  await demo.shows("kproxy demo:");
  demo.kill("SIGINT");
  assertEquals(await demo.ended, 130, demo.said);
  assertEquals(await leftOf(demo.pid), []);
});

e2eTest("the demo fails, and says why, when kproxy dies", NEEDS, async () => {
  await using demo = new Demo();
  await demo.shows("Edits, under");
  Deno.kill(await demo.childWith("main.ts run"), "SIGKILL");
  assertEquals(await demo.ended, 1, demo.said);
  assertMatch(
    demo.err,
    /^The demo failed: kproxy ended by itself, by SIGKILL\nIts last lines:\n( {2}.*\n)* {2}First sync done/,
  );
  assertEquals(demo.out.includes("All as it should be"), false);
  assertEquals(await leftOf(demo.pid), []);
});

e2eTest("the demo fails when connections fail during the edits", NEEDS, async () => {
  await using demo = new Demo();
  await demo.shows("Edits, under");
  const run = new Deno.Command("ip", {
    args: ["-n", `kpdemo-${demo.pid}-node`, "link", "set", "web-3", "down"],
  });
  assertEquals((await run.output()).code, 0);
  assertEquals(await demo.ended, 1, demo.said);
  assertMatch(demo.out, /^ {2}the edits: \d+ of \d+ requests failed$/m);
  assertEquals(await leftOf(demo.pid), []);
});

e2eTest(
  "the demo shows the same where legacy iptables is the default",
  [...NEEDS, LEGACY_TABLES],
  async () => {
    const folder = await Deno.makeTempDir({ prefix: "kp-legacy-" });
    try {
      for (const name of ["iptables", "ip6tables"]) {
        for (const action of ["", "-save", "-restore"]) {
          await Deno.symlink(`/usr/sbin/${name}-legacy${action}`, `${folder}/${name}${action}`);
        }
      }
      await using demo = new Demo(undefined, { PATH: `${folder}:${Deno.env.get("PATH") ?? ""}` });
      assertEquals(await demo.ended, 0, demo.said);
      assertMatch(demo.out, /^ {2}iptables +legacy \(legacy is the system's default\)$/m);
      assertMatch(demo.out, /^ {2}- web-2 +edit to kernel [\d.]+ m?s \(iptables-save, every 10 ms\)$/m);
      assertEquals(await leftOf(demo.pid), []);
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
);

e2eTest("the demo runs in a user namespace, as without root", [...NEEDS, USER_NAMESPACES], async () => {
  const script = `import { runInUserNamespace } from "${ROOT}/tools/demo/user_namespace.ts";
    Deno.exitCode = await runInUserNamespace("${ROOT}/tools/demo.ts");`;
  await using demo = new Demo(["eval", "-q", script]);
  assertEquals(await demo.ended, 0, demo.said);
  assertMatch(demo.out, /^Not root: .*\n\nkproxy demo/);
  assertMatch(demo.out, /^All as it should be, /m);
});
