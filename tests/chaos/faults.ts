/**
 * The faults of a chaos run. Each is over when it resolves, and says what it may cost: what takes kproxy's rules away may cost
 * connections until they are back, everything else nothing.
 *
 * @module
 */
import type { ApiRequest, Fault as ApiFault } from "../support/list_watch_server.ts";
import { type Damage, damagesOf, type Foreign, foreignersOf } from "./damages.ts";
import type { ChaosNode } from "./node.ts";
import type { ChaosMode } from "./mode.ts";
import type { Random } from "./random.ts";
import { MISBEHAVIOURS } from "./tools.ts";

/** One kind of fault. */
export interface Fault {
  readonly name: string;
  /** How likely it is, beside the others. */
  readonly weight: number;
  /** True if its time does not count for repairs: kproxy cannot do its work. */
  readonly hinders: boolean;
  /** True if connections may fail until kproxy has repaired it. */
  readonly damages: boolean;
  /** Does it, draws what it needs, and resolves when it is over to what it was exactly. */
  readonly run: (node: ChaosNode, random: Random) => Promise<string>;
}

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** How long a fault lasts, in milliseconds; machines on which all takes longer need longer ones. */
function hold({ mode }: ChaosNode, random: Random, least: number, most: number): Promise<void> {
  return sleep(random.whole(least, most) * (mode.proxyMode === "ipvs" ? 3 : 1));
}

function ended(name: string, signal: "SIGTERM" | "SIGKILL"): Fault {
  return {
    name,
    weight: 3,
    hinders: true,
    damages: false,
    run: (node, random) =>
      node.withKproxy(async () => {
        await node.end(signal);
        await hold(node, random, 0, 1_500);
        await node.start();
        return "";
      }),
  };
}

const STOPPED: Fault = {
  name: "kproxy stands still",
  weight: 1,
  hinders: true,
  damages: false,
  run: (node, random) =>
    node.withKproxy(async () => {
      node.kproxy.kill("SIGSTOP");
      await hold(node, random, 500, 3_000);
      node.kproxy.kill("SIGCONT");
      return "";
    }),
};

const TOOL: Fault = {
  name: "a tool misbehaves",
  weight: 6,
  hinders: true,
  damages: false,
  run: async (node, random) => {
    const { tools, mode } = node;
    const planned: string[] = [];
    for (let count = random.whole(1, 4); count > 0; count--) {
      const tool = random.pick(mode.tools);
      // nft does nothing until it has read all: what it has read of half an input is no transaction.
      const how = random.pick(MISBEHAVIOURS.filter((how) => tool !== "nft" || how !== "dies half-way"));
      await tools.plan(tool, how);
      planned.push(`${tool} ${how}`);
    }
    await hold(node, random, 1_000, 4_000);
    const suffered = await tools.end();
    return `${planned.join(", ")}; ${suffered} did`;
  },
};

const LOCK: Fault = {
  name: "the xtables lock is held",
  weight: 1,
  hinders: true,
  damages: false,
  run: async (node, random) => {
    using file = await Deno.open(node.lockFile, { write: true });
    await file.lock(true);
    await hold(node, random, 500, 8_000);
    await file.unlock();
    return "";
  },
};

const DESCRIPTORS: Fault = {
  name: "few file descriptors",
  weight: 2,
  hinders: true,
  damages: false,
  run: (node, random) =>
    node.withKproxy(async () => {
      const prlimit = ["prlimit", `--pid=${node.kproxy.pid}`];
      const most = random.whole(24, 60);
      const { stdout: before } = await node.netns.exec.run([
        ...prlimit,
        "--nofile",
        "--noheadings",
        "-o",
        "SOFT",
      ]);
      await node.netns.exec.run([...prlimit, `--nofile=${most}:`]);
      // A client asks meanwhile, and gets no answer.
      const asked = node.netns.exec.run([
        "curl",
        "-s",
        "-m",
        "2",
        "--noproxy",
        "*",
        "http://127.0.0.1:10256/healthz",
      ]);
      await hold(node, random, 1_000, 3_000);
      await asked;
      await node.netns.exec.run([...prlimit, `--nofile=${before.trim()}:`]);
      return `${most}`;
    }),
};

const DISK: Fault = {
  name: "the disk is full",
  weight: 1,
  hinders: false,
  damages: false,
  run: (node, random) =>
    node.withKproxy(async () => {
      const filler = `/proc/${node.kproxy.pid}/root${node.folder}/disk/filler`;
      await node.netns.exec.run(["sh", "-c", `head -c 10000000 /dev/zero >"${filler}"`]);
      await hold(node, random, 500, 2_000);
      await node.netns.exec.run(["rm", "-f", filler]);
      return "";
    }),
};

/** What the API server does to the next requests. */
const API_FAULTS: readonly (readonly [name: string, draw: (random: Random) => ApiFault])[] = [
  ["500", () => ({ status: 500 })],
  ["429", () => ({ status: 429, retryAfter: 1 })],
  ["410", () => ({ status: 410 })],
  ["cut", (random) => ({ cutAfterBytes: random.whole(0, 3_000) })],
  ["late", (random) => ({ delayMs: random.whole(200, 2_000) })],
  ["never", () => ({ hang: true })],
];

const API_ANSWERS: Fault = {
  name: "bad answers of the API server",
  weight: 3,
  hinders: false,
  damages: false,
  run: async (node, random) => {
    const { api } = node;
    const drawn = Array.from({ length: random.whole(1, 4) }, () => random.pick(API_FAULTS));
    const any = (_: ApiRequest): boolean => true;
    for (const [, draw] of drawn) api.plan(any, draw(random));
    const expired = random.chance(0.5);
    if (expired) api.compact();
    api.endWatches(random.pick(["cleanly", "broken"]));
    await hold(node, random, 1_000, 3_000);
    api.unplan();
    api.closeConnections();
    return `${drawn.map(([name]) => name).join(", ")}${expired ? ", its history is gone" : ""}`;
  },
};

const API_AWAY: Fault = {
  name: "no way to the API server",
  weight: 2,
  hinders: false,
  damages: false,
  run: async (node, random) => {
    await node.connectApi(false);
    node.api.closeConnections();
    await hold(node, random, 500, 3_000);
    await node.connectApi(true);
    return "";
  },
};

const API_SILENT: Fault = {
  name: "silent watches",
  weight: 1,
  hinders: false,
  damages: false,
  run: async (node, random) => {
    node.api.silenceWatches();
    await hold(node, random, 500, 2_000);
    node.api.closeConnections();
    return "";
  },
};

function damage({ name, run }: Damage): Fault {
  return { name, weight: 1.5, hinders: false, damages: true, run: (node, random) => run(node.netns, random) };
}

function foreign({ name, come }: Foreign): Fault {
  return {
    name,
    weight: 1.5,
    hinders: false,
    damages: false,
    run: async (node, random) => {
      const go = await come(node.netns, random);
      await hold(node, random, 500, 3_000);
      return await go() ? "" : "it was gone";
    },
  };
}

/** All that may happen in this mode. */
export function faultsOf(mode: ChaosMode): readonly Fault[] {
  return [
    ended("kill -9 and a start", "SIGKILL"),
    ended("SIGTERM and a start", "SIGTERM"),
    STOPPED,
    TOOL,
    ...(mode.proxyMode === "nftables" ? [] : [LOCK]),
    DESCRIPTORS,
    DISK,
    API_ANSWERS,
    API_AWAY,
    API_SILENT,
    ...damagesOf(mode).map(damage),
    ...foreignersOf(mode).map(foreign),
  ];
}
