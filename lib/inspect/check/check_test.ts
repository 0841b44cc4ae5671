/**
 * What `kproxy check` reports of whole nodes: sound ones, empty ones, rules of other layouts, tools that fail, a running kproxy beside.
 *
 * @module
 */
import { API, EMPTY, inputOf, OLD, service, slice, WEB } from "../../../tests/support/check_objects.ts";
import { all, checked, printed } from "../../../tests/support/check_texts.ts";
import { KUBE_PROXY_TABLE } from "../../../tests/support/kube_proxy_table.ts";
import { defaultConfig } from "../../config/defaults.ts";
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { openOwnSocket } from "../../kernel/own_socket.ts";
import { type DesiredInput, RULES_MODES } from "../desired/desired.ts";
import { liveOfTexts } from "../live/live.ts";
import { checkNode, type Difference, type FamilyCheck, lastingChecks, mayPass } from "./check.ts";
import { leaveBeside, repairLeave } from "./repair.ts";
import { checkDocument, checkLines } from "./report.ts";
import { assert, assertEquals, assertStringIncludes } from "@std/assert";

const NONE = { permissions: "none" } as const;

for (const mode of RULES_MODES) {
  Deno.test(`${mode}: a node as it should be is clean`, NONE, async () => {
    const input = inputOf(mode);
    const check = await checked(mode, printed(mode, input), input);
    assertEquals([all(check), check.problems, check.compared], [[], [], 3]);
  });

  Deno.test(
    `${mode}: an empty node misses everything, and rules of a Service that is gone are leftovers`,
    NONE,
    async () => {
      const input = inputOf(mode);
      const bare = await checked(mode, { iptables: "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n" }, input);
      assertEquals(
        [...bare.services.keys()].sort(),
        ["shop/api", "shop/empty", "shop/web"].slice(0, bare.services.size),
      );
      assert(bare.base.length > 0 && bare.services.size >= 2);
      const stale = printed(mode, inputOf(mode, [...WEB, ...API, ...EMPTY, ...OLD]));
      const found = await checked(mode, stale, input);
      assertEquals([...found.services], [], all(found).join("\n"));
      assert(found.leftovers.length > 0);
      assert(/old|10\.96\.0\.9|30089|10\.244\.0\.99/.test(all(found).join("\n")), all(found).join("\n"));
    },
  );
}

Deno.test("rules as iptables-save prints them are those that were written", NONE, async () => {
  const { iptables = "" } = printed("iptables", inputOf("iptables"));
  const saved = iptables
    .replaceAll(/ -s (10\.244\.0\.\d+) /g, " -s $1/32 ")
    .replaceAll(
      /--probability ([\d.]+)/g,
      (_, p: string) => `--probability ${(Math.round(Number(p) * 2 ** 31) / 2 ** 31).toFixed(11)}`,
    );
  assert(saved !== iptables);
  assertEquals(all(await checked("iptables", { iptables: saved })), []);
});

Deno.test("rules of kube-proxy's nftables mode are compared by what they do", NONE, async () => {
  const shop = (ips: readonly string[]): DesiredInput =>
    inputOf("nftables", [
      service("web", "10.96.10.1", 0, {
        type: "ClusterIP",
        ports: [{ name: "http", port: 80, protocol: "TCP" }],
      }),
      slice("web", ips),
    ]);
  const live = { nft: KUBE_PROXY_TABLE };
  const same = await checked("nftables", live, shop(["10.244.0.11", "10.244.0.12"]));
  assertEquals([all(same), same.notes.length], [[], 1]);
  assertStringIncludes(same.notes.join(), "kube-proxy's: they are compared by what they do");
  const other = await checked("nftables", live, shop(["10.244.0.11", "10.244.0.13"]));
  const lines = all(other);
  assertEquals(lines.length, 3, lines.join("\n"));
  assertStringIncludes(lines[0] ?? "", "shop/web | behaviour | packet 10.244.0.5@cni0 → 10.96.10.1:80/tcp");
  assertStringIncludes(lines[0] ?? "", "10.244.0.13:8080 (1/2)");
  const beside = await checked("nftables", {
    own: printed("nftables", shop(["10.244.0.11"])).nftables ?? "",
    ...live,
  }, shop(["10.244.0.11"]));
  assertEquals(beside.leftovers.map(({ kind, place }) => [kind, place]), [[
    "otherMode",
    "table ip kube-proxy",
  ]]);
  assertStringIncludes(beside.leftovers[0]?.cause ?? "", "kproxy cleanup --of=kube-proxy --only=nftables");
});

Deno.test(
  "rules that add to the counters of nfacct are as they should be, known beforehand or not",
  NONE,
  async () => {
    const input = inputOf("iptables");
    const counted = { ...input, machine: { ...input.machine, nfacct: true } };
    const { iptables = "" } = printed("iptables", counted);
    assertStringIncludes(iptables, "-m nfacct --nfacct-name localhost_nps_accepted_pkts");
    assertStringIncludes(iptables, "-m nfacct --nfacct-name ct_state_invalid_dropped_pkts");
    for (const desired of [input, counted]) {
      assertEquals(all(await checked("iptables", { iptables }, desired)), []);
    }
    const broken = await checked("iptables", {
      iptables: iptables.replaceAll(/^-A KUBE-SVC-\S+ .*shop\/web.*\n/gm, ""),
    });
    assertEquals([...broken.services.keys()], ["shop/web"]);
  },
);

Deno.test("what a tool could not read is not called missing", NONE, async () => {
  const problems = [{ place: "iptables-nft-save -c", message: "Permission denied: reading it needs root" }];
  const live = liveOfTexts([], { from: "the kernel", bound: [], problems });
  const checks = await checkNode({
    mode: "iptables",
    desired: inputOf("iptables"),
    live,
    isKernel: true,
    nodeAddresses: [],
    podInterface: "cni0",
    quarantined: null,
  });
  assertEquals(checks.map((check) => [check.family, all(check), check.notes.length]), [["IPv4", [], 1]]);
  const report = {
    mode: "iptables",
    desiredFrom: "files",
    liveFrom: "the kernel",
    families: checks,
    repair: null,
  };
  const text = checkLines(report).join("\n");
  assertStringIncludes(text, "Not read: iptables-nft-save -c: Permission denied");
  assert(!text.includes("nothing differs"), text);
  assertEquals(JSON.parse(JSON.stringify(checkDocument(report))).clean, false);
});

const FINE = { time: "2026-11-22T10:00:00Z", kind: "full", durationMs: 1 };
const LEAVES: readonly (readonly [
  name: string,
  status: { readonly used?: string; readonly failed?: boolean; readonly drift?: string },
  words: string,
  isAllowed: boolean,
])[] = [
  ["one that is well fixes it itself", {}, "every 30 s and fixes them itself", false],
  ["one that has fixed before does so again", { drift: "repaired" }, "fixes them itself", false],
  ["one whose syncs fail does not", { failed: true }, "its last sync of IPv4 failed: no memory", true],
  ["one that has tried in vain does not", { drift: "lasting" }, "nat KUBE-SERVICES stayed damaged", true],
  ["one of another mode is left alone", { used: "ipvs", failed: true }, "runs mode ipvs", false],
];

for (const [name, { used = "iptables", failed = false, drift }, words, isAllowed] of LEAVES) {
  Deno.test(`beside a running kproxy: ${name}`, NONE, () => {
    const family = {
      lastSync: FINE,
      lastFailure: failed ? { ...FINE, time: "2026-11-22T10:05:00Z", error: "no memory" } : null,
    };
    const damaged = ["nat KUBE-SERVICES"];
    const status = {
      mode: { used, configured: used, fallback: null },
      families: { IPv4: family },
      drift: { found: 1, repaired: 0, recent: drift === undefined ? [] : [{ outcome: drift, damaged }] },
    } as unknown as Parameters<typeof leaveBeside>[0];
    const leave = leaveBeside(status, "/run/kproxy/kproxy.sock", defaultConfig(), "iptables");
    assertEquals(leave.isAllowed, isAllowed);
    assertStringIncludes(leave.isAllowed ? leave.note ?? "" : leave.reason, words);
  });
}

/** Runs `work` with a configuration whose socket is in a temporary folder. */
async function withSocket(work: (config: KubeProxyConfiguration) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-socket-" });
  const config = defaultConfig();
  const kproxy = { ...config.kproxy, socket: `${folder}/kproxy.sock` };
  try {
    await work({ ...config, kproxy, metricsBindAddress: "127.0.0.1:1" });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("beside a kproxy that does not answer nothing is fixed: it may have no processor", async () => {
  await withSocket(async (config) => {
    const { socket } = config.kproxy;
    using _listener = openOwnSocket(socket).listener;
    const leave = await repairLeave(config, "iptables", { limitMs: 50 });
    const reason =
      `a kproxy may run here, and it is not known whether it fixes its rules itself: the kproxy on ${socket} ` +
      "cannot be asked: it does not answer within 0.05 s";
    assertEquals(leave, { isAllowed: false, reason });
  });
});

Deno.test("where no kproxy runs, rules are fixed, unless something at the port of its metrics says that it is a proxy", async () => {
  await withSocket(async (config) => {
    assertEquals(await repairLeave(config, "iptables"), { isAllowed: true, note: null });
    await using server = Deno.serve(
      { port: 0, hostname: "127.0.0.1", onListen: () => {} },
      ({ url }) => new Response(new URL(url).pathname === "/proxyMode" ? "ipvs" : "ok"),
    );
    const metricsBindAddress = `127.0.0.1:${server.addr.port}`;
    const leave = await repairLeave({ ...config, metricsBindAddress }, "iptables");
    assertEquals(leave, {
      isAllowed: false,
      reason:
        `on ${metricsBindAddress} another proxy answers there: mode ipvs; it is not known whether that one fixes ` +
        "its rules itself: end it first",
    });
  });
});

function difference(cause: string): Difference {
  return { kind: "missing", place: "nftables ip kproxy services", cause, wanted: ["accept"], found: [] };
}

function check(found: Partial<FamilyCheck> = {}): FamilyCheck {
  const none = { base: [], services: new Map(), leftovers: [], notes: [], problems: [] };
  return { family: "IPv4", compared: 2, isRead: true, ...none, ...found };
}

Deno.test("what only one of two looks has found is left out, wherever it is", NONE, () => {
  const found = check({
    base: [difference("a")],
    services: new Map([["shop/web", [difference("b")]]]),
    leftovers: [difference("c")],
  });
  assertEquals(lastingChecks([check()], [found]), [check()]);
  assertEquals(lastingChecks([found], [check()]), [check()]);
});

Deno.test("what both have found is reported as it is by now", NONE, () => {
  const first = check({
    base: [difference("emptied")],
    services: new Map([["shop/web", [difference("emptied")]], ["shop/api", [difference("emptied")]]]),
    leftovers: [difference("old")],
  });
  const services = new Map([["shop/web", [difference("gone")]], ["shop/new", [difference("gone")]]]);
  const second = check({ base: [difference("gone")], services, leftovers: [difference("older")] });
  assertEquals(lastingChecks([first], [second]), [
    check({
      base: [difference("gone")],
      services: new Map([["shop/web", [difference("gone")]]]),
      leftovers: [difference("older")],
    }),
  ]);
});

Deno.test("a family that was not read, or not told of, speaks for nothing", NONE, () => {
  const found = check({ base: [difference("a")] });
  assertEquals(lastingChecks([check({ isRead: false })], [found]), [found]);
  assertEquals(lastingChecks([check({ family: "IPv6" })], [found]), [found]);
});

Deno.test("a second look is worth while where something was compared and differs", NONE, () => {
  assertEquals(mayPass([check(), check({ family: "IPv6" })]), false);
  assertEquals(mayPass([check({ isRead: false })]), false);
  assertEquals(mayPass([check(), check({ family: "IPv6", leftovers: [difference("c")] })]), true);
});
