/** Each feature that a node may lack is named. */
import { assert, assertEquals, assertMatch, assertRejects, assertStringIncludes } from "@std/assert";
import { FakeNft } from "../../../../tests/support/fake_nft.ts";
import { modeContext } from "../../../../tests/support/mode_context.ts";
import { TABLE } from "../../../../tests/support/nftables_rig.ts";
import { recordingLog } from "../../../../tests/support/recording_log.ts";
import { defaultConfig } from "../../../config/defaults.ts";
import { ExecError, UnsupportedError } from "../../../errors.ts";
import type { Exec, ExecResult } from "../../../kernel/exec.ts";
import { ChangeTracker } from "../../../model/change_tracker.ts";
import { NODE_A } from "../../../../tests/support/model_objects.ts";
import { neededFeatures, prepareNftables } from "./preflight.ts";

const NONE = { permissions: "none" } as const;

interface Machine {
  readonly version?: string;
  /** Null: there is no program `sysctl`. */
  readonly disableIpv6?: string | null;
  /** Lines that nft or the kernel refuses, with the error. */
  readonly refuse?: (line: string) => string | undefined;
  readonly fail?: FakeNft["fail"];
  readonly missing?: boolean;
  readonly nodePortAddresses?: string[];
  readonly trafficCounters?: boolean;
}

function machine(options: Machine) {
  const { version, disableIpv6 = "0", refuse, fail, missing = false, nodePortAddresses } = options;
  const { trafficCounters = false } = options;
  const nft = new FakeNft();
  if (version !== undefined) nft.version = version;
  if (refuse !== undefined) nft.refuse = refuse;
  if (fail !== undefined) nft.fail = fail;
  const exec: Exec = {
    run: (argv, options): Promise<ExecResult> => {
      const gone = argv[0] === "nft" ? missing : disableIpv6 === null;
      if (gone) return Promise.reject(new ExecError(argv, -1, `entity not found: ${argv[0]}`));
      if (argv[0] !== "sysctl") return nft.run(argv, options);
      return Promise.resolve({ code: 0, stdout: `${argv[1]} = ${disableIpv6}\n`, stderr: "" });
    },
  };
  const { log, lines } = recordingLog();
  const defaults = defaultConfig();
  const config = {
    ...defaults,
    kproxy: { ...defaults.kproxy, trafficCounters },
    ...nodePortAddresses === undefined ? {} : { nodePortAddresses },
  };
  const prepare = async () => prepareNftables(await modeContext({ exec, config, log }));
  return { nft, lines, prepare };
}

async function refusal(options: Machine): Promise<UnsupportedError> {
  return await assertRejects(() => machine(options).prepare(), UnsupportedError);
}

Deno.test("a node that has everything gets both families, and dry runs change nothing", NONE, async () => {
  const { nft, lines, prepare } = machine({});
  const { proxiers } = await prepare();
  assertEquals(proxiers.map(({ family }) => family), ["IPv4", "IPv6"]);
  assertMatch(lines[0] ?? "", /Using nftables.*1\.0\.6/);
  assertEquals(nft.transactions, []);
  assertEquals(nft.lists, []);
  assert(nft.runs.length <= 3, `${nft.runs.length} programs`);
});

Deno.test(
  "a full sync lists our tables only where one is there",
  NONE,
  async () => {
    for (const former of ["", "ip kproxy", "ip6 kproxy", "ip kproxy-next", "ip other"]) {
      const { nft, prepare } = machine({});
      if (former !== "") await nft.others(`add table ${former}\n`);
      const { proxiers } = await prepare();
      for (const proxier of proxiers) {
        const { state } = new ChangeTracker({ family: proxier.family, node: NODE_A }).checkout();
        await proxier.sync({ state, changed: "all" });
      }
      assertEquals(nft.lists.length > 0, former.includes("kproxy"), former);
      assertStringIncludes(nft.listed(TABLE), "cluster-ips");
      assertEquals(nft.listed("ip kproxy-next"), "");
    }
  },
);

Deno.test("where a dry run does not show that there is no table, a full sync lists ours", NONE, async () => {
  const fail: FakeNft["fail"] = (_argv, stdin) =>
    stdin.startsWith("create table") ? { code: 1, stdout: "", stderr: "what else\n" } : undefined;
  const { nft, prepare } = machine({ fail });
  const { proxiers: [proxier] } = await prepare();
  assert(proxier !== undefined);
  const { state } = new ChangeTracker({ family: proxier.family, node: NODE_A }).checkout();
  await proxier.sync({ state, changed: "all" });
  assertEquals(nft.lists.length, 1);
});

/** Words of the failure of every dry run for IPv6, and whether IPv6 is absent then. */
const IPV6_FAILURES: readonly [stderr: string, code: number, absent: boolean][] = [
  [
    "/dev/stdin:1:1-9: Error: Could not process rule: Operation not supported\nadd table ip6 x\n^^^\n",
    1,
    true,
  ],
  ["Error: Could not process rule: Cannot allocate memory\n", 1, false],
  ["netlink: Error: cache initialization failed: Interrupted system call\n", 1, false],
  ["", 1, false],
  ["", 137, false],
  ["what else", 1, false],
];
for (const [stderr, code, absent] of IPV6_FAILURES) {
  Deno.test(
    `IPv6 after ${code} ${JSON.stringify(stderr)}: ${absent ? "absent" : "nobody knows"}`,
    NONE,
    async () => {
      const fail: Machine["fail"] = (_argv, stdin) =>
        stdin.includes("ip6") ? { code, stdout: "", stderr } : undefined;
      const { prepare } = machine({ fail });
      if (!absent) return void await assertRejects(prepare, ExecError);
      const { proxiers, refused } = await prepare();
      assertEquals([proxiers.map(({ family }) => family), refused.map(({ family }) => family)], [["IPv4"], [
        "IPv6",
      ]]);
    },
  );
}

Deno.test("a family that is refused with its table in place is said to have rules", NONE, async () => {
  const { nft, prepare } = machine({ disableIpv6: "1" });
  assertEquals((await prepare()).refused.map(({ hasRules }) => hasRules), [false]);
  await nft.run(["nft", "-f", "-"], { stdin: "add table ip6 kproxy\n" });
  assertEquals((await prepare()).refused.map(({ hasRules }) => hasRules), [true]);
});

Deno.test("the program, its version and its rights", NONE, async () => {
  const permission = (line: string) =>
    `/dev/stdin:1:1-9: Error: Could not process rule: Operation not permitted\n${line}\n`;
  const cases: readonly [name: string, options: Machine, message: RegExp][] = [
    ["no program", { missing: true }, /^install nftables \(not on PATH: nft\)$/],
    ["too old", { version: "nftables v0.9.8 (E.D.S.)\n" }, /needs nft 1\.0\.1 or newer, found nft 0\.9\.8$/],
    ["no rights", {
      fail: (argv, stdin) =>
        argv.includes("-f")
          ? { code: 1, stdout: "", stderr: permission(stdin.split("\n", 1)[0]!) }
          : undefined,
    }, /^run needs root or CAP_NET_ADMIN$/],
    ["a program that does not start", {
      fail: () => ({ code: 127, stdout: "", stderr: "nft: error while loading shared libraries\n" }),
    }, /^nft does not work here: .*shared libraries/],
    ["a kernel without nf_tables", {
      fail: (argv) =>
        argv.includes("-f")
          ? {
            code: 1,
            stdout: "",
            stderr: "netlink: Error: cache initialization failed: Protocol not supported\n",
          }
          : undefined,
    }, /IPv4 cannot be served: .*tables of family ip .*nf_tables \(CONFIG_NF_TABLES/],
    ["an error that names none of the lines", {
      fail: (argv) =>
        argv.includes("-f")
          ? {
            code: 1,
            stdout: "",
            stderr: "internal:0:0-0: Error: Could not process rule: Operation not supported\n",
          }
          : undefined,
    }, /IPv4 cannot be served: .*tables of family ip .*nf_tables \(CONFIG_NF_TABLES/],
  ];
  for (const [name, options, message] of cases) assertMatch((await refusal(options)).message, message, name);
  // A build that calls itself something else is tried.
  assertEquals((await machine({ version: "nftables (git)\n" }).prepare()).proxiers.length, 2);
});

/** What the kernel lacks → a word of the lines that need it, and what the message must name. */
const FEATURES: readonly [name: string, line: RegExp, named: RegExp][] = [
  ["families", /^add table ip /, /tables of family ip .*CONFIG_NF_TABLES_IPV4/],
  ["filter chains", /type filter/, /chains that filter/],
  ["translating chains", /type nat/, /translate addresses.*nft_chain_nat \(CONFIG_NFT_NAT\)/],
  ["verdict maps", /: verdict/, /maps from destination to verdict/],
  ["numgen", /^add rule.*numgen/, /random numbers.*nft_numgen \(CONFIG_NFT_NUMGEN\)/],
  ["numgen in keys", /typeof.*numgen/, /address translation by a map with random numbers/],
  ["translation", /dnat ip /, /address translation by a map.*nft_nat \(CONFIG_NFT_NAT\)/],
  ["masquerade", /masquerade fully-random/, /masquerading.*nft_masq \(CONFIG_NFT_MASQ\)/],
  ["conntrack", /ct state/, /connection tracking.*nft_ct \(CONFIG_NFT_CT\)/],
  ["fib", /fib saddr/, /local addresses.*nft_fib_ipv4 \(CONFIG_NFT_FIB_IPV4\)/],
  ["reject", / reject\b/, /rejection.*nft_reject_ipv4 \(CONFIG_NFT_REJECT_IPV4\)/],
  ["dynamic sets", /flags dynamic/, /sets that rules fill/],
];

for (const [name, line, named] of FEATURES) {
  Deno.test(`a kernel without what ${name} need is reported`, NONE, async () => {
    const refuse = (text: string) => line.test(text) ? "No such file or directory" : undefined;
    const error = await refusal({ refuse });
    assertMatch(error.message, /^the primary IP family IPv4 cannot be served: /);
    assertMatch(error.message, named);
    assertStringIncludes(error.message, "in the kernel");
    assertStringIncludes(error.message, "nft 1.0.6");
  });
}

Deno.test("every feature of the list has a case here", NONE, () => {
  for (const { name, kernel, commands, option } of neededFeatures("IPv4")) {
    if (option !== undefined) continue;
    const probed = FEATURES.some(([, line, named]) =>
      commands.some((command) => line.test(command)) && named.test(`${name} ${kernel}`)
    );
    assert(probed, name);
  }
});

Deno.test("what nft itself does not understand is a matter of its version", NONE, async () => {
  const error = await refusal({
    fail: (argv, stdin) =>
      argv.includes("-f") && stdin.includes("numgen random mod 65536")
        ? {
          code: 1,
          stdout: "",
          stderr: "/dev/stdin:3:9-14: Error: syntax error, unexpected numgen\nadd map\n^\n",
        }
        : undefined,
  });
  assertMatch(error.message, /needs a newer nft, found syntax error, unexpected numgen/);
});

Deno.test(
  "without comments on tables, chains and sets the rules are the same but for those",
  NONE,
  async () => {
    const refuse = (line: string) =>
      /^add (table|map|set|chain) .*comment/.test(line) ? "Operation not supported" : undefined;
    const { nft, prepare } = machine({ refuse });
    const { proxiers } = await prepare();
    for (const proxier of proxiers) {
      const { state } = new ChangeTracker({ family: proxier.family, node: NODE_A }).checkout();
      await proxier.sync({ state, changed: "all" });
    }
    assertStringIncludes(nft.listed(TABLE), "cluster-ips");
    assertEquals(/^\t+comment /m.test(nft.listed(TABLE)), false);
  },
);

Deno.test("IPv6 is left out where the kernel or the node does not have it", NONE, async () => {
  for (
    const [options, says] of [
      [{ disableIpv6: "1" }, /disable_ipv6 = 0, found 1/],
      [
        { refuse: (line) => /^add table ip6 /.test(line) ? "Operation not supported" : undefined },
        /family ip6/,
      ],
    ] as readonly [Machine, RegExp][]
  ) {
    const { lines, prepare } = machine(options);
    assertEquals((await prepare()).proxiers.map(({ family }) => family), ["IPv4"]);
    assertMatch(lines.join(""), says);
    assertMatch(lines.join(""), /single-stack/);
  }
  // Without a program to ask, nothing says that it is off.
  assertEquals((await machine({ disableIpv6: null }).prepare()).proxiers.length, 2);
});

Deno.test(
  "node ports that are wanted on loopback addresses are reported not to be there",
  NONE,
  async () => {
    const cases: readonly [addresses: string, told: string[]][] = [
      ["127.0.0.0/8", ["127.0.0.1"]],
      ["::1/128", ["::1"]],
      ["192.0.2.0/24,::/1", ["::1"]],
      ["localhost", ["127.0.0.1", "::1"]],
      ["192.0.2.0/24,2001:db8::/64", []],
      ["0.0.0.0/0", []],
      ["::/0", []],
    ];
    for (const [addresses, told] of cases) {
      const { lines, prepare } = machine({ nodePortAddresses: addresses.split(",") });
      await prepare();
      const found = lines.map((line) => /will not answer on (\S+):/.exec(line)?.[1]).filter((address) =>
        address !== undefined
      );
      assertEquals(found, told, addresses);
    }
    const { lines, prepare } = machine({ nodePortAddresses: ["localhost"], disableIpv6: "1" });
    await prepare();
    assertEquals(lines.filter((line) => line.includes("will not answer on ::1")), []);
  },
);

Deno.test(
  "counters that are not wanted or are refused are left out, and everything else works",
  NONE,
  async () => {
    const refuseCounters = (line: string) =>
      line.includes("; counter ;") ? "Operation not supported" : undefined;
    const cases: readonly [options: Machine, counts: boolean, warned: boolean, programs: number][] = [
      [{}, false, false, 3],
      [{ trafficCounters: true }, true, false, 3],
      // One dry run more for each family.
      [{ trafficCounters: true, refuse: refuseCounters }, false, true, 5],
    ];
    for (const [options, counts, warned, programs] of cases) {
      const { nft, lines, prepare } = machine(options);
      const { proxiers, serviceTraffic } = await prepare();
      assertEquals([proxiers.length, serviceTraffic !== undefined, nft.runs.length], [2, counts, programs]);
      assertEquals(lines.filter((line) => line.includes("Traffic is not counted")).length, warned ? 2 : 0);
    }
  },
);

Deno.test("ServiceCIDRs concern the family whose networks changed", NONE, async () => {
  const { setServiceCidrs } = await machine({}).prepare();
  assert(setServiceCidrs !== undefined);
  assertEquals(setServiceCidrs(["10.96.0.0/16"]), ["IPv4"]);
  assertEquals(setServiceCidrs(["10.96.0.0/16", "fd00::/112"]), ["IPv6"]);
  assertEquals(setServiceCidrs(["10.96.0.0/16", "fd00::/112"]), []);
  assertEquals(setServiceCidrs([]), ["IPv4", "IPv6"]);
});
