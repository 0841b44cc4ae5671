import { assertEquals, assertMatch } from "@std/assert";
import { ROOT } from "../../tools/project_files.ts";
import { readUnlessGone } from "../support/processes.ts";
import { e2eTest, need, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { until } from "../support/until.ts";

const NEEDS = [ROOT_NAMESPACES, program("iptables"), program("nft"), program("ip"), program("sysctl")];
const USER_NAMESPACES = need("user namespaces", "a kernel that lets users make them", () => {
  const { success, stderr } = new Deno.Command("unshare", {
    args: ["--user", "--map-root-user", "--net", "--mount", "true"],
    stdin: "null",
  }).outputSync();
  return success ? undefined : new TextDecoder().decode(stderr).trim();
});

/** A demo, what it has written so far, and its status at the end. */
class Demo {
  readonly #child: Deno.ChildProcess;
  readonly status: Promise<number>;
  out = "";

  constructor(...args: readonly string[]) {
    this.#child = new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "-q", `${ROOT}/tools/demo.ts`, ...args],
      stdin: "null",
      stdout: "piped",
      stderr: "null",
    }).spawn();
    this.status = this.#read();
  }

  get pid(): number {
    return this.#child.pid;
  }

  kill(signal: Deno.Signal): void {
    this.#child.kill(signal);
  }

  async #read(): Promise<number> {
    for await (const text of this.#child.stdout.pipeThrough(new TextDecoderStream())) this.out += text;
    return (await this.#child.status).code;
  }
}

/** Namespaces, programs in them and folders of one demo that are still there. */
async function leftOf(pid: number): Promise<string[]> {
  const left: string[] = [];
  const isIts = (text: string): boolean => new RegExp(`kp${pid}-|kproxy-manifests-${pid}-`).test(text);
  for (const folder of ["/run/netns", Deno.env.get("TMPDIR") ?? "/tmp"]) {
    for await (const { name } of Deno.readDir(folder)) if (isIts(name)) left.push(name);
  }
  for await (const { name } of Deno.readDir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const argv = await readUnlessGone(`/proc/${name}/cmdline`);
    if (isIts(argv)) left.push(argv.replaceAll("\0", " "));
  }
  return left;
}

const SHOWN: readonly RegExp[] = [
  /^60 requests to the ClusterIP 10\.96\.0\.1:80; .*\n( {2}10\.244\.0\.1[12] +\d+ #+ +\d+ KUBE-SEP-\w{16}\n){2}\n/m,
  /^60 requests to the NodePort 192\.0\.2\.10:30080; .*\n( {2}10\.244\.0\.1[12] +\d+ #+ +\d+ KUBE-SEP-\w{16}\n){2}\n/m,
  /^ {2}first sync +IPv4: \d+ rules in [\d.]+ms$/m,
  /^ {2}- 10\.244\.0\.12 +edit to kernel [\d.]+ ms$/m,
  /^ {2}\+ 10\.244\.1\.13 +edit to kernel [\d.]+ ms$/m,
  /^ {2}60 requests +10\.244\.0\.11 \d+, 10\.244\.1\.13 \d+$/m,
  /^ {2} +nothing left: iptables-save shows no chain and no rule$/m,
  /^All as it should be, in [\d.]+ s; namespaces, programs and files are gone$/m,
];

e2eTest("the demo shows the main job in plain text and leaves nothing", NEEDS, async () => {
  const demo = new Demo();
  assertEquals(await demo.status, 0, demo.out);
  for (const pattern of SHOWN) assertMatch(demo.out, pattern);
  assertEquals(await leftOf(demo.pid), []);
});

e2eTest("the demo fails when connections fail, and when the cleanup leaves something", NEEDS, async () => {
  const demo = new Demo();
  await until(() => demo.out.includes("\n  - "), "the first edit");
  const list = new Deno.Command("ip", { args: ["netns", "list"] }).outputSync().stdout;
  const [node = ""] = new TextDecoder().decode(list).match(new RegExp(`kp${demo.pid}-\\S+-0(?= |$)`, "m")) ??
    [];
  const onNode = (...argv: string[]): string => {
    const args = ["netns", "exec", node, ...argv];
    const { code, stdout, stderr } = new Deno.Command("ip", { args }).outputSync();
    assertEquals(code, 0, new TextDecoder().decode(stderr));
    return new TextDecoder().decode(stdout);
  };
  // A chain in the place of one that kproxy would forget.
  onNode("iptables", "-t", "nat", "-N", "KUBE-FORGOTTEN");
  const lossy = "FORWARD -p tcp --syn -m statistic --mode nth --every 20 --packet 0 -j DROP".split(" ");
  onNode("iptables", "-t", "mangle", "-I", ...lossy);
  await until(
    () => /^\[[1-9]\d*:\d+\] -A FORWARD /m.test(onNode("iptables-save", "-c", "-t", "mangle")),
    "a lost SYN",
  );
  onNode("iptables", "-t", "mangle", "-D", ...lossy);
  assertEquals(await demo.status, 1, demo.out);
  assertMatch(demo.out, /^ {2}\S+ +\d+ made, [1-9]\d* failed, /m);
  assertMatch(demo.out, /^ {2}left after the cleanup: :KUBE-FORGOTTEN - /m);
  assertEquals(await leftOf(demo.pid), []);
});

e2eTest("a signal under load ends the demo with its status and leaves nothing", NEEDS, async () => {
  for (const [signal, status] of [["SIGINT", 130], ["SIGTERM", 143]] as const) {
    const demo = new Demo();
    await until(() => demo.out.includes("Edits, under"), "the edits");
    demo.kill(signal);
    assertEquals(await demo.status, status, demo.out);
    await until(async () => (await leftOf(demo.pid)).length === 0, "an end of all that it made");
  }
});

e2eTest("the demo runs in a user namespace, as without root", [...NEEDS, USER_NAMESPACES], async () => {
  const demo = new Demo("--user-namespace");
  assertEquals(await demo.status, 0, demo.out);
  assertMatch(demo.out, /^Not root: .*\nkproxy demo/);
  assertMatch(demo.out, /^All as it should be, /m);
});
