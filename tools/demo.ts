/**
 * The demo: kproxy's main job on real packets. `deno task demo` installs missing programs, builds the test network of a node, a
 * client and pods in namespaces, shows a Service at work and under edits, and leaves nothing behind.
 *
 * Exit status: 0 if all went well, 1 if not, 2 if it may not create namespaces, 128 + its number after a signal.
 *
 * @module
 */
import type { KproxyProcess } from "../tests/support/kproxy_process.ts";
import { askingIn } from "../tests/support/netns.ts";
import {
  WEB_CLUSTER_IP,
  WEB_NODE_PORT,
  WEB_PODS,
  WEB_PORT,
  WEB_TARGET_PORT,
  WebLab,
  webSlice,
} from "../tests/support/lab_web.ts";
import type { SocketAddress } from "../tests/support/lab_sockets.ts";
import { NODE_ADDRESSES } from "../tests/support/node_lab.ts";
import { writeErrorLine, writeLine } from "./output.ts";
import { runtimeFlags } from "./permissions.ts";
import { ROOT } from "./project_files.ts";
import { installPackages, NODE_PACKAGES } from "./setup.ts";

const SIGNALS = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 } as const;
/** Flag: run as without root. */
const USER_NAMESPACE = "--user-namespace";
const UNSHARE = ["--user", "--map-root-user", "--net", "--mount"];
const REQUESTS = 60;
const TIMEOUT_MS = 5_000;
/** Time with traffic before, between and after the edits. */
const BETWEEN_EDITS_MS = 1_000;
const [FIRST, LEAVING, JOINING] = WEB_PODS;
const CLUSTER_IP = { ip: WEB_CLUSTER_IP, port: WEB_PORT };
const NODE_PORT = { ip: NODE_ADDRESSES.eth0[0], port: WEB_NODE_PORT };

const problems: string[] = [];

function heading(text: string): void {
  writeLine(`\n${text}`);
}

function row(label: string, text: string): void {
  writeLine(`  ${label.padEnd(14)}${text}`);
}

function milliseconds(ms: number): string {
  return `${ms.toFixed(ms < 10 ? 1 : 0)} ms`;
}

/** Connections that each endpoint's rule has translated so far, with its chain, by endpoint IP. */
async function ruleCounts({ lab }: WebLab): Promise<Map<string, { chain: string; packets: number }>> {
  const text = await lab.node.netns.run(["iptables-save", "-c", "-t", "nat"]);
  const rules = text.matchAll(/^\[(\d+):\d+\] -A (KUBE-SEP-\S+) .*--to-destination (\S+):\d+/gm);
  return new Map(
    [...rules].map(([, packets, chain = "", ip = ""]) => [ip, { chain, packets: Number(packets) }]),
  );
}

/** Sends requests, and counts the answers of each pod. */
async function ask(web: WebLab, what: string, to: SocketAddress): Promise<Map<string, number>> {
  const results = await web.client.probe({ protocol: "tcp", to, count: REQUESTS, timeoutMs: TIMEOUT_MS });
  const counts = new Map<string, number>();
  for (const result of results) {
    const name = result.kind === "answer" ? result.answer.server : result.kind;
    counts.set(name, (counts.get(name) ?? 0) + 1);
    if (result.kind !== "answer") problems.push(`${what}: a request ended so: ${result.kind}`);
  }
  return counts;
}

async function showSpread(web: WebLab, what: string, to: SocketAddress): Promise<void> {
  heading(`${REQUESTS} requests to the ${what} ${to.ip}:${to.port}; right, each rule's own count`);
  const before = await ruleCounts(web);
  const counts = await ask(web, what, to);
  const after = await ruleCounts(web);
  for (const pod of [FIRST, LEAVING]) {
    const count = counts.get(pod) ?? 0;
    const packets = (after.get(pod)?.packets ?? 0) - (before.get(pod)?.packets ?? 0);
    row(
      pod,
      `${String(count).padStart(2)} ${"#".repeat(count).padEnd(45)} ${packets} ${after.get(pod)?.chain}`,
    );
    if (count === 0) problems.push(`${what}: no request reached ${pod}`);
    if (packets !== count) problems.push(`${pod} answered ${count} requests, its rule counted ${packets}`);
  }
}

/** Changes the endpoints; measures the time until kproxy has programmed them. */
async function edit(
  web: WebLab,
  kproxy: KproxyProcess,
  what: string,
  pods: readonly string[],
): Promise<void> {
  const startMs = performance.now();
  await kproxy.change(() => web.manifests.replace("endpoints.json", [webSlice(pods)]), "shop/web");
  row(what, `edit to kernel ${milliseconds(performance.now() - startMs)}`);
}

async function editUnderLoad(web: WebLab, kproxy: KproxyProcess): Promise<void> {
  heading("Edits, under 130 new connections a second to each");
  const loops = [await web.loop(web.pod, CLUSTER_IP), await web.loop(web.client, NODE_PORT)];
  const traffic = () => Promise.all(loops.map((loop) => loop.answeredFor(BETWEEN_EDITS_MS)));
  await traffic();
  await edit(web, kproxy, `- ${LEAVING}`, [FIRST]);
  await traffic();
  await edit(web, kproxy, `+ ${JOINING}`, [FIRST, JOINING]);
  await traffic();
  for (const loop of loops) {
    const { requests, failures, slowestMs, byServer } = await loop.stop();
    row(
      `${loop.to.ip}`,
      `${requests} made, ${failures.length} failed, the slowest took ${milliseconds(slowestMs)}`,
    );
    row("", Object.entries(byServer).map(([server, count]) => `${server} ${count}`).join(", "));
    for (const failure of failures) problems.push(`${loop.to.ip}: ${failure}`);
    const joining = `${JOINING}:${WEB_TARGET_PORT}`;
    if (!(joining in byServer)) problems.push(`${loop.to.ip}: no connection reached ${joining}`);
  }
}

async function stopAndCleanUp(web: WebLab, kproxy: KproxyProcess): Promise<void> {
  heading("kproxy stops, its rules stay");
  row("SIGTERM", `status ${(await kproxy.stop()).code}`);
  const counts = await ask(web, "after the stop", CLUSTER_IP);
  row(`${REQUESTS} requests`, [...counts].sort().map(([pod, count]) => `${pod} ${count}`).join(", "));

  heading("kproxy cleanup");
  const { netns } = web.lab.node;
  const program = ["run", "-q", "--config", `${ROOT}/deno.json`, ...runtimeFlags(), `${ROOT}/start.ts`];
  const cleanup = await netns.run([Deno.execPath(), ...program, ...askingIn(netns.name, ["cleanup"])]);
  for (const line of cleanup.trim().split("\n")) row("", line);
  for (const save of ["iptables-save", "ip6tables-save"]) {
    const left = (await netns.run([save])).split("\n").filter((line) => /^-A |^:.* - \[/.test(line));
    row(
      "",
      left.length === 0 ? `nothing left: ${save} shows no chain and no rule` : `${save}: ${left.length} left`,
    );
    problems.push(...left.map((line) => `left after the cleanup: ${line}`));
  }
}

async function play(): Promise<void> {
  await using web = await WebLab.create();
  heading(`Network, in namespaces kp${Deno.pid}-*`);
  row("client", web.client.label);
  row("node", `${NODE_ADDRESSES.eth0.join(", ")}; kproxy runs here`);
  for (const pod of WEB_PODS) {
    row("pod", `${pod}:${WEB_TARGET_PORT}${pod === JOINING ? "; in no file yet" : ""}`);
  }

  heading("kproxy run --manifests FOLDER --proxy-mode=iptables");
  const startMs = performance.now();
  await using kproxy = await web.start();
  row("serving", `after ${milliseconds(performance.now() - startMs)}`);
  for (const line of kproxy.lines.filter(({ msg }) => msg.startsWith("First sync done"))) {
    row("first sync", `${line.family}: ${line.rules} rules in ${line.took}`);
  }
  await showSpread(web, "ClusterIP", CLUSTER_IP);
  await showSpread(web, "NodePort", NODE_PORT);
  await editUnderLoad(web, kproxy);
  await stopAndCleanUp(web, kproxy);
}

/** Runs the demo as root of a user namespace, where iproute2 has its namespaces in a /run of its own; 2 if the kernel refuses. */
async function runInUserNamespace(): Promise<number> {
  const probe = await new Deno.Command("unshare", { args: [...UNSHARE, "true"], stdin: "null" }).output();
  if (!probe.success) {
    writeErrorLine("The demo makes network namespaces, which takes root: run it again as root");
    writeErrorLine(`(A user namespace would do too, but: ${new TextDecoder().decode(probe.stderr).trim()})`);
    return 2;
  }
  writeLine("Not root: everything happens in a user namespace");
  const inside = 'mount -t tmpfs tmpfs /run && exec "$0" "$@"';
  const args = [
    ...UNSHARE,
    "sh",
    "-c",
    inside,
    Deno.execPath(),
    "run",
    "-A",
    "-q",
    import.meta.filename ?? "",
  ];
  const child = new Deno.Command("unshare", { args, stdin: "inherit", stdout: "inherit", stderr: "inherit" })
    .spawn();
  // A signal to this process also ends the child, whose status is returned.
  for (const name of Object.keys(SIGNALS) as (keyof typeof SIGNALS)[]) {
    Deno.addSignalListener(name, () => child.kill(name));
  }
  return (await child.status).code;
}

async function main(): Promise<number> {
  if (Deno.build.os !== "linux") {
    writeErrorLine(`The demo needs Linux's network namespaces; this is ${Deno.build.os}`);
    return 2;
  }
  if ((await installPackages(NODE_PACKAGES)).length > 0) return 1;
  // The PATH of users lacks the folders of root's programs.
  Deno.env.set("PATH", `${Deno.env.get("PATH") ?? ""}:/usr/sbin:/sbin`);
  // Inside its namespace, kproxy could reach no registry.
  const cache = ["cache", "-q", "--config", `${ROOT}/deno.json`, `${ROOT}/start.ts`];
  await new Deno.Command(Deno.execPath(), { args: cache, stdin: "null" }).spawn().status;
  if (Deno.uid() !== 0 || Deno.args.includes(USER_NAMESPACE)) return await runInUserNamespace();
  for (const [name, number] of Object.entries(SIGNALS)) {
    // The lab's guard cleans up after a process that ends this way.
    // deno-lint-ignore kproxy/exit-fence -- it is no part of kproxy.
    Deno.addSignalListener(name as Deno.Signal, () => Deno.exit(128 + number));
  }
  const startMs = performance.now();
  writeLine("kproxy demo: a Service on real packets, in network namespaces of its own");
  try {
    await play();
  } catch (error) {
    problems.push(error instanceof Error ? error.message : String(error));
  }
  if (problems.length === 0) {
    const seconds = ((performance.now() - startMs) / 1000).toFixed(1);
    writeLine(`\nAll as it should be, in ${seconds} s; namespaces, programs and files are gone`);
    return 0;
  }
  heading("Not as it should be");
  for (const problem of problems) writeLine(`  ${problem}`);
  return 1;
}

Deno.exitCode = await main();
