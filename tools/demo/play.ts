/**
 * The demo from the first namespace to the last rule: what is done, what it must show, and what it says.
 *
 * @module
 */
import { ROOT } from "../project_files.ts";
import { Client, countByBackend, roleArgv } from "./client.ts";
import type { Child } from "./child.ts";
import {
  defaultVariant,
  endpointRules,
  familiesOf,
  type IpFamily,
  jumpOf,
  type KernelWatch,
  savedRules,
  watchKernel,
} from "./kernel_rules.ts";
import { kproxyArgv, KproxyProcess } from "./kproxy_process.ts";
import { type Backend, BACKEND_PORT, BACKENDS, buildNetwork, CLIENT_IP, NODE_IP } from "./network.ts";
import type { Screen } from "./screen.ts";
import type { Reply } from "./web_client.ts";
import { DemoError, type World } from "./world.ts";

const CLUSTER_IP = "10.96.0.10:80";
const NODE_PORT_NUMBER = 30080;
const NODE_PORT = `${NODE_IP}:${NODE_PORT_NUMBER}`;
const ENDPOINTS_FILE = "web-endpoints.yaml";
/** Who answers once the edits are done. */
const AFTER_EDITS = "web-1 web-3 web-4";
const REQUESTS = 60;
const BAR_WIDTH = 31;
const RATE_PER_SECOND = 125;
const PROMISED_RATE = 100;
/** Longer than kproxy rests between two syncs (1 s), so that each edit comes after quiet. */
const BEFORE_EDIT_MS = 1200;
const AFTER_EDIT_MS = 1500;
/** A backend starts within a fraction of a second; a busy machine takes longer. */
const BACKEND_MS = 30_000;
/** A SYN that nobody answers is sent again after a second. */
const SENT_AGAIN_MS = 900;
/** From the moment no rule leads to a backend until it is told to end: its last connections arrive. */
const DRAIN_MS = 300;

/** Everything the scenes share. */
interface Stage {
  readonly world: World;
  readonly screen: Screen;
  readonly families: readonly IpFamily[];
  readonly watch: KernelWatch;
  readonly client: Client;
  readonly servers: ReadonlyMap<string, Child>;
  /** The folder of the manifests. */
  readonly folder: string;
  /** What was not as it should be. */
  readonly problems: string[];
}

/** Plays the demo in a world of its own. Adds to `problems` what is not as it should be. */
export async function play(world: World, screen: Screen, problems: string[]): Promise<void> {
  const stage = { ...await setStage(world, screen), problems };
  const kproxy = await startKproxy(stage);
  await showSpread(stage, "the ClusterIP", CLUSTER_IP);
  await showSpread(stage, "the NodePort", NODE_PORT);
  await editUnderLoad(stage);
  await stopKproxy(stage, kproxy);
  await cleanUp(stage);
}

async function setStage(world: World, screen: Screen): Promise<Omit<Stage, "problems">> {
  screen.line(
    screen.tone("strong", "kproxy demo: a Service on real packets, in network namespaces of its own"),
  );
  screen.progress("making namespaces");
  await buildNetwork(world);
  const families = await familiesOf(world);
  const variant = await defaultVariant();
  screen.progress("starting backends and client");
  const servers = new Map(BACKENDS.map((backend) => [backend.name, startBackend(world, backend)]));
  const client = new Client(world);
  const watch = await watchKernel(world, variant);
  for (const { name, ip } of BACKENDS) await backendAnswers(client, name, `${ip}:${BACKEND_PORT}`, world);
  const folder = await copyManifests(world);

  screen.heading(`Network, in namespaces ${world.prefix}*`);
  screen.row("client", CLIENT_IP);
  screen.row("node", `${NODE_IP}, routes between all; kproxy runs here`);
  for (const { name, ip } of BACKENDS) {
    const later = name === "web-4" ? "; in no file yet" : "";
    screen.row(name, `${ip}:${BACKEND_PORT}, answers HTTP with its name${later}`);
  }
  return { world, screen, families, watch, client, servers, folder };
}

function startBackend(world: World, { name, ip }: Backend): Child {
  return world.start(name, {
    name: `the backend ${name}`,
    argv: roleArgv("web_backend.ts", name, ip, String(BACKEND_PORT)),
  });
}

/** Asks a backend by its own address until it answers, so that nothing but kproxy is on trial later. */
async function backendAnswers(client: Client, name: string, target: string, world: World): Promise<void> {
  const deadlineMs = Date.now() + BACKEND_MS;
  for (;;) {
    const [reply] = await client.spread(target, 1);
    if (reply?.backend === name) return;
    if (Date.now() > deadlineMs) throw new DemoError(`${name} does not answer: ${reply?.failure}`);
    await world.sleep(20);
  }
}

async function copyManifests(world: World): Promise<string> {
  const folder = await world.folder();
  for (const name of ["web.yaml", ENDPOINTS_FILE]) {
    await Deno.copyFile(`${ROOT}/examples/demo/${name}`, `${folder}/${name}`);
  }
  return folder;
}

async function startKproxy({ world, screen, families, watch, folder }: Stage): Promise<KproxyProcess> {
  screen.heading("kproxy run --manifests FOLDER, with copies of examples/demo/*.yaml");
  screen.progress("starting kproxy");
  const inKernel = watch.whenAdded(BACKENDS[0]?.ip ?? "");
  const kproxy = new KproxyProcess(world, ["--manifests", folder, "--hostname-override", "demo-node"]);
  const firstSyncs = await world.within(
    "the first sync",
    Promise.all(families.map((family) => kproxy.firstSync(family))),
  );
  const readyMs = await world.within("the first rules", inKernel) - kproxy.startedMs;
  screen.row("files", folder);
  screen.row("Service", `demo/web: ClusterIP ${CLUSTER_IP}, NodePort ${NODE_PORT_NUMBER}, 3 endpoints`);
  screen.row("iptables", await world.within("the variant", kproxy.variant()));
  screen.row("serving", `start to kernel ${formatMs(readyMs)} (${watch.method})`);
  for (const { family, rules, took } of firstSyncs) {
    screen.row("first sync", `${family}: ${rules} rules in ${took.replace("ms", " ms")}`);
  }
  const service = await jumpOf(world, "KUBE-SERVICES", `-d ${CLUSTER_IP.replace(":80", "/32")}`);
  const external = await jumpOf(world, "KUBE-NODEPORTS", `--dport ${NODE_PORT_NUMBER}`);
  screen.row("ClusterIP", `KUBE-SERVICES > ${service} > one of 3 KUBE-SEP-*`);
  screen.row("NodePort", `KUBE-NODEPORTS > ${external} > the same KUBE-SVC-*`);
  return kproxy;
}

async function showSpread(stage: Stage, what: string, target: string): Promise<void> {
  const { world, screen, client, problems } = stage;
  screen.heading(`${REQUESTS} requests to ${what} ${target}; right, each rule's own count`);
  screen.progress("asking");
  const before = await endpointRules(world);
  const replies = await client.spread(target, REQUESTS);
  const after = await endpointRules(world);
  const counts = countByBackend(replies);
  for (const { name, ip } of BACKENDS.slice(0, 3)) {
    const count = counts.get(name) ?? 0;
    const rule = after.get(`${ip}:${BACKEND_PORT}`);
    const packets = (rule?.packets ?? 0) - (before.get(`${ip}:${BACKEND_PORT}`)?.packets ?? 0);
    screen.row(
      name,
      `${String(count).padStart(2)} ${screen.bar(count)}${" ".repeat(Math.max(1, BAR_WIDTH - count))}` +
        screen.tone("faint", `${packets} ${rule?.chain ?? "no rule"}`),
    );
    if (count === 0) problems.push(`${what}: no request reached ${name}`);
    if (packets !== count) problems.push(`${name} answered ${count} requests, the kernel sent it ${packets}`);
  }
  reportFailures(stage, what, replies);
  const strangers = [...counts.keys()].filter((name) => !BACKENDS.slice(0, 3).some((b) => b.name === name));
  if (strangers.length > 0) problems.push(`${what}: ${strangers.join(", ")} answered, which is no endpoint`);
}

/** Records requests that failed, and shows the first few. */
function reportFailures({ screen, problems }: Stage, what: string, replies: readonly Reply[]): number {
  const failures = replies.filter(({ failure }) => failure !== "");
  if (failures.length === 0) return 0;
  problems.push(`${what}: ${failures.length} of ${replies.length} requests failed`);
  for (const { failure } of failures.slice(0, 3)) screen.row("failed", screen.tone("bad", failure));
  return failures.length;
}

/** One edit of the files, as it went. */
interface Edit {
  readonly backend: Backend;
  readonly editedMs: number;
  readonly inKernelMs: number;
}

async function editUnderLoad(stage: Stage): Promise<void> {
  const { world, screen, client, servers } = stage;
  screen.heading(`Edits, under ${RATE_PER_SECOND} new connections a second to both`);
  const [, leaving, , joining] = BACKENDS;
  if (leaving === undefined || joining === undefined) throw new TypeError("The demo has four backends");
  const sentAgainBefore = await client.synsSentAgain();
  await client.startLoad(RATE_PER_SECOND, [CLUSTER_IP, NODE_PORT], ({ done, failed }) => {
    screen.progress(`${done} connections, ${failed} failed`);
  });
  await world.sleep(BEFORE_EDIT_MS);

  const removal = await removeEndpoint(stage, leaving);
  showEdit(stage, `- ${leaving.name}`, removal);
  await world.sleep(DRAIN_MS);
  await world.within(
    `the end of ${leaving.name}`,
    Promise.resolve(servers.get(leaving.name)?.stop("SIGTERM")),
  );
  await world.sleep(AFTER_EDIT_MS);

  const addition = await addEndpoint(stage, joining);
  showEdit(stage, `+ ${joining.name}`, addition);
  await world.sleep(AFTER_EDIT_MS);
  const replies = await client.stopLoad();
  screen.progress("");
  showLeaving(stage, removal, replies);
  showJoining(stage, addition, replies);
  showLoad(stage, replies, lostSyns(replies, await client.synsSentAgain() - sentAgainBefore));
}

function showEdit({ screen, watch }: Stage, what: string, { editedMs, inKernelMs }: Edit): void {
  const took = screen.tone("good", formatMs(inKernelMs - editedMs));
  screen.row(what, `edit to kernel ${took} (${watch.method})`);
}

async function removeEndpoint({ world, watch, folder }: Stage, backend: Backend): Promise<Edit> {
  const rule = (await endpointRules(world)).get(`${backend.ip}:${BACKEND_PORT}`);
  if (rule === undefined) throw new Error(`No rule leads to ${backend.name}`);
  const gone = watch.whenGone(rule.chain);
  const editedMs = await editFile(
    `${folder}/${ENDPOINTS_FILE}`,
    (text) => text.replace(endpointLine(backend), ""),
  );
  const inKernelMs = await world.within(`the removal of ${backend.name} in the kernel`, gone);
  return { backend, editedMs, inKernelMs };
}

async function addEndpoint({ world, watch, folder }: Stage, backend: Backend): Promise<Edit> {
  const added = watch.whenAdded(backend.ip);
  const editedMs = await editFile(
    `${folder}/${ENDPOINTS_FILE}`,
    (text) => `${text.trimEnd()}\n${endpointLine(backend)}`,
  );
  const inKernelMs = await world.within(`the addition of ${backend.name} in the kernel`, added);
  return { backend, editedMs, inKernelMs };
}

function endpointLine({ ip }: Backend): string {
  return `  - addresses: [${ip}]\n`;
}

/** Changes a file in one step, as editors and ConfigMaps do; returns the time just before it took effect. */
async function editFile(path: string, change: (text: string) => string): Promise<number> {
  const old = await Deno.readTextFile(path);
  const text = change(old);
  if (text === old) throw new Error(`The edit changes nothing in ${path}`);
  const draft = path.replace(/[^/]+$/, ".draft");
  await Deno.writeTextFile(draft, text);
  const editedMs = Date.now();
  await Deno.rename(draft, path);
  return editedMs;
}

function showLeaving(stage: Stage, { backend, editedMs, inKernelMs }: Edit, replies: readonly Reply[]): void {
  const { screen, problems } = stage;
  const mine = replies.filter((reply) => reply.backend === backend.name);
  const last = mine.at(-1);
  if (last === undefined) problems.push(`${backend.name} got no connection before it left`);
  else screen.row(backend.name, `last connection begun ${relative(last.startedMs - editedMs)}; then stopped`);
  const late = mine.filter((reply) => reply.startedMs > inKernelMs);
  if (late.length > 0) {
    problems.push(`${backend.name} got ${late.length} connections after its rules had gone`);
  }
}

function showJoining(
  { screen, problems }: Stage,
  { backend, editedMs }: Edit,
  replies: readonly Reply[],
): void {
  const first = replies.find((reply) => reply.backend === backend.name && reply.failure === "");
  if (first === undefined) problems.push(`${backend.name} got no connection`);
  else screen.row(backend.name, `first connection begun ${relative(first.startedMs - editedMs)}`);
}

function formatMs(ms: number): string {
  return ms < 1000 ? `${ms.toFixed(ms < 10 ? 1 : 0)} ms` : `${(ms / 1000).toFixed(2)} s`;
}

function relative(ms: number): string {
  return ms < 0 ? `${formatMs(-ms)} before the edit` : `${formatMs(ms)} after the edit`;
}

/**
 * Who lost a SYN waits for a second, and its kernel counts that it sends it again. The time alone would also tell of a busy machine, the
 * count alone also of a port that the backend still remembers, whose SYN is sent again at once.
 */
function lostSyns(replies: readonly Reply[], sentAgain: number): number {
  return Math.min(sentAgain, replies.filter(({ tookMs }) => tookMs > SENT_AGAIN_MS).length);
}

function showLoad(stage: Stage, replies: readonly Reply[], lost: number): void {
  const { screen, problems } = stage;
  const counts = countByBackend(replies);
  const begunMs = replies.map((reply) => reply.startedMs);
  const rate = replies.length / (Math.max(...begunMs) - Math.min(...begunMs)) * 1000;
  const failed = reportFailures(stage, "the edits", replies);
  const slowestMs = Math.max(...replies.map((reply) => reply.tookMs));
  const judged = (count: number, what: string): string =>
    screen.tone(count === 0 ? "good" : "bad", `${count} ${what}`);
  screen.row(
    "connections",
    `${replies.length} made, ${judged(failed, "failed")}, ${judged(lost, "SYNs lost")}, ` +
      `the slowest took ${formatMs(slowestMs)}`,
  );
  screen.row("", BACKENDS.map(({ name }) => `${name} ${counts.get(name) ?? 0}`).join(", "));
  if (lost > 0) problems.push(`the edits: ${lost} SYNs were lost`);
  if (!(rate >= PROMISED_RATE)) problems.push(`The client made only ${rate.toFixed(0)} connections a second`);
}

async function stopKproxy(stage: Stage, kproxy: KproxyProcess): Promise<void> {
  const { world, screen, client, problems } = stage;
  screen.heading("kproxy stops, its rules stay");
  screen.progress("stopping kproxy");
  const { code } = await world.within("the end of kproxy", kproxy.stop());
  if (code !== 0) problems.push(`kproxy ended with status ${code} at SIGTERM`);
  const replies = await client.spread(CLUSTER_IP, REQUESTS);
  const counts = [...countByBackend(replies)].sort(([a], [b]) => a < b ? -1 : 1);
  screen.row("SIGTERM", `status ${code}`);
  screen.row(`${REQUESTS} requests`, counts.map(([name, count]) => `${name} ${count}`).join(", "));
  reportFailures(stage, "after the stop", replies);
  const names = counts.map(([name]) => name).join(" ");
  if (names !== AFTER_EDITS) {
    problems.push(`After the stop ${names || "nobody"} answered, not ${AFTER_EDITS}`);
  }
}

async function cleanUp({ world, screen, families, problems }: Stage): Promise<void> {
  screen.heading("kproxy cleanup");
  screen.progress("cleaning up");
  for (const line of (await world.run("node", kproxyArgv("cleanup", "--socket="))).trim().split("\n")) {
    screen.row("", line);
  }
  for (const family of families) {
    const left = await savedRules(world, family);
    for (const line of left) problems.push(`Left after the cleanup, ${family}: ${line}`);
    const verdict = left.length === 0
      ? screen.tone("good", "nothing left: iptables-save shows no chain and no rule")
      : screen.tone("bad", `${left.length} chains and rules left`);
    screen.row(family, family === "IPv4" ? verdict : verdict.replace("iptables", "ip6tables"));
  }
}
