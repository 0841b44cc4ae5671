import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { recordingLog } from "../../../tests/support/recording_log.ts";
import { defaultConfig } from "../../config/defaults.ts";
import type { KubeProxyConfiguration, ProxyMode } from "../../config/types.ts";
import { ExecError, UnsupportedError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import { UNKNOWN_SYSCTLS } from "../../kernel/sysctl.ts";
import { candidateModes, chooseMode, type Modes, passedOverText } from "./choose_mode.ts";
import type { PreparedMode } from "./mode.ts";

const PREPARED: PreparedMode = { proxiers: [], refused: [], reconfigure: () => [] };
const NO_EXEC: Exec = { run: () => Promise.reject(new TypeError("nothing is run here")) };
const NO_MACHINE = { exec: NO_EXEC, sysctls: UNKNOWN_SYSCTLS } as const;

/** Whether this node can run each implemented mode: null if it can, else why not. */
type Node = Readonly<Partial<Record<ProxyMode, string | null>>>;

interface Scene {
  readonly node: Node;
  readonly wanted: string;
  readonly fallback?: boolean;
}

interface Outcome {
  /** `mode`, or the message of the error. */
  readonly result: string;
  readonly tried: readonly string[];
  readonly log: readonly string[];
}

function configOf({ wanted, fallback = false }: Scene): KubeProxyConfiguration {
  const config = defaultConfig();
  return {
    ...config,
    mode: wanted as ProxyMode,
    kproxy: { ...config.kproxy, proxyModeFallback: fallback },
  };
}

function modesOf(node: Node, tried: string[]): Modes {
  return new Map((Object.entries(node) as [ProxyMode, string | null][]).map(([mode, problem]) => [
    mode,
    ({ config }) => {
      tried.push(config.mode);
      return problem === null
        ? Promise.resolve(PREPARED)
        : Promise.reject(new UnsupportedError("", "", "", { message: problem }));
    },
  ]));
}

async function choose(scene: Scene): Promise<Outcome> {
  const tried: string[] = [];
  const { lines, log } = recordingLog();
  try {
    const config = configOf(scene);
    const chosen = await chooseMode(modesOf(scene.node, tried), { ...NO_MACHINE, config, log });
    assertEquals(chosen.prepared, PREPARED);
    assertEquals(chosen.config.mode, chosen.mode);
    return { result: chosen.mode, tried, log: lines };
  } catch (error) {
    assert(error instanceof UnsupportedError, String(error));
    return { result: error.message, tried, log: lines };
  }
}

const ALL: Node = { iptables: null, ipvs: null, nftables: null };
const NO_NFT: Node = { ...ALL, nftables: "install nftables (not on PATH: nft)" };
const NO_IPVS: Node = { ...ALL, ipvs: "no module ip_vs" };
const NOTHING: Node = { iptables: "install iptables", ipvs: "no module ip_vs", nftables: "install nftables" };
const IS = "Proxy mode";
const HAS = "is not in this release; it has: iptables, ipvs, nftables";
const FELL = 'W "Running another proxy mode than the configured one"';

const CASES: readonly (readonly [name: string, Scene, Outcome])[] = [
  ["a configured mode is the only one that is tried", { node: ALL, wanted: "iptables" }, {
    result: "iptables",
    tried: ["iptables"],
    log: [],
  }],
  ["a configured mode that cannot run is refused in its own words", { node: NO_IPVS, wanted: "ipvs" }, {
    result: "no module ip_vs",
    tried: ["ipvs"],
    log: [],
  }],
  ["auto takes nftables where it works", { node: ALL, wanted: "auto" }, {
    result: "nftables",
    tried: ["nftables"],
    log: ['I "Chose proxy mode" mode="nftables" reason="the best there is works here"'],
  }],
  ["auto takes iptables where nftables does not work, and says why", { node: NO_NFT, wanted: "auto" }, {
    result: "iptables",
    tried: ["nftables", "iptables"],
    log: [
      'I "Proxy mode passed over" mode="nftables" reason="install nftables (not on PATH: nft)"',
      'I "Chose proxy mode" mode="iptables" reason="the best that works here"',
    ],
  }],
  ["auto knows only the modes of this release", { node: { iptables: null }, wanted: "auto" }, {
    result: "iptables",
    tried: ["iptables"],
    log: ['I "Chose proxy mode" mode="iptables" reason="the best there is works here"'],
  }],
  ["auto never takes ipvs", { node: { ...NOTHING, ipvs: null }, wanted: "auto" }, {
    result: "no proxy mode works here: nftables: install nftables; iptables: install iptables",
    tried: ["nftables", "iptables"],
    log: [],
  }],
  ["one reason for all modes is told once", {
    node: { iptables: "run needs root", nftables: "run needs root" },
    wanted: "auto",
  }, { result: "run needs root", tried: ["nftables", "iptables"], log: [] }],
  ["a fallback is not used where the mode works", { node: ALL, wanted: "ipvs", fallback: true }, {
    result: "ipvs",
    tried: ["ipvs"],
    log: [],
  }],
  ["ipvs falls back to iptables", { node: NO_IPVS, wanted: "ipvs", fallback: true }, {
    result: "iptables",
    tried: ["ipvs", "iptables"],
    log: [`${FELL} configured="ipvs" mode="iptables" reason="ipvs: no module ip_vs"`],
  }],
  ["nftables falls back to iptables", { node: NO_NFT, wanted: "nftables", fallback: true }, {
    result: "iptables",
    tried: ["nftables", "iptables"],
    log: [
      `${FELL} configured="nftables" mode="iptables" reason="nftables: install nftables (not on PATH: nft)"`,
    ],
  }],
  ["an unknown mode becomes iptables", { node: ALL, wanted: "bogus", fallback: true }, {
    result: "iptables",
    tried: ["iptables"],
    log: [`${FELL} configured="bogus" mode="iptables" reason="bogus: there is no such mode"`],
  }],
  ["a fall through every mode names each reason", { node: NOTHING, wanted: "ipvs", fallback: true }, {
    result: "no proxy mode works here: ipvs: no module ip_vs; iptables: install iptables; " +
      `userspace: ${IS} userspace ${HAS}`,
    tried: ["ipvs", "iptables"],
    log: [],
  }],
  ["auto falls on to userspace too", { node: NOTHING, wanted: "auto", fallback: true }, {
    result: "no proxy mode works here: nftables: install nftables; iptables: install iptables; " +
      `userspace: ${IS} userspace ${HAS}`,
    tried: ["nftables", "iptables"],
    log: [],
  }],
  ["a mode that this release lacks falls back too", {
    node: { iptables: null },
    wanted: "ipvs",
    fallback: true,
  }, {
    result: "iptables",
    tried: ["iptables"],
    log: [
      `${FELL} configured="ipvs" mode="iptables" ` +
      'reason="ipvs: Proxy mode ipvs is not in this release; it has: iptables"',
    ],
  }],
];

for (const [name, scene, outcome] of CASES) {
  Deno.test(name, { permissions: "none" }, async () => assertEquals(await choose(scene), outcome));
}

Deno.test("modes of which this release has none are refused before the node is touched", {
  permissions: "none",
}, () => {
  const modes = modesOf(ALL, []);
  for (const fallback of [false, true]) {
    const scene = { node: ALL, wanted: "userspace", fallback };
    assertThrows(() => candidateModes(configOf(scene), modes), UnsupportedError, `${IS} userspace ${HAS}`);
  }
});

Deno.test("a node that fails for another reason than what it lacks is no reason to fall back", {
  permissions: "none",
}, async () => {
  const failure = new ExecError(["sysctl"], 1, "Invalid argument");
  const modes: Modes = new Map([
    ["ipvs", () => Promise.reject(failure)],
    ["iptables", () => Promise.resolve(PREPARED)],
  ]);
  const config = configOf({ node: ALL, wanted: "ipvs", fallback: true });
  const { log } = recordingLog();
  assertEquals(
    await assertRejects(() => chooseMode(modes, { ...NO_MACHINE, config, log }), ExecError),
    failure,
  );
});

Deno.test("what follows from the mode follows from the one that is taken", {
  permissions: "none",
}, async () => {
  const config = configOf({ node: ALL, wanted: "auto" });
  assertEquals(config.nodePortAddresses, null);
  const { log } = recordingLog();
  const cases: [Node, string[] | null][] = [[ALL, ["primary"]], [NO_NFT, null]];
  for (const [node, addresses] of cases) {
    const chosen = await chooseMode(modesOf(node, []), { ...NO_MACHINE, config, log });
    assertEquals(chosen.config.nodePortAddresses, addresses);
  }
});

Deno.test("reasons are reported mode by mode", { permissions: "none" }, () => {
  assertEquals(passedOverText([{ mode: "a", reason: "x" }, { mode: "b", reason: "y" }]), "a: x; b: y");
});
