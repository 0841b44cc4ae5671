import { assert, assertEquals, assertThrows } from "@std/assert";
import { UsageError } from "../../errors.ts";
import type { FlagValue } from "../../config/flags_overlay.ts";
import type { KindName } from "../../config/kinds.ts";
import { valuesOf } from "./flag.ts";
import { type FlagName, FLAGS } from "./flags.ts";
import { parseArgs, type ParsedFlags } from "./parse_args.ts";

/** A value of each kind: as typed, and what it yields. */
const TYPED: Readonly<Record<KindName, readonly [text: string, value: FlagValue]>> = {
  string: ["/a b=c", "/a b=c"],
  bool: ["false", false],
  int: ["-998", -998],
  level: ["2", 2],
  float: ["7.5", 7.5],
  duration: ["1m30s", 90_000],
  nanoseconds: ["500ms", 500],
  quantity: ["64Ki", "64Ki"],
  list: ["10.0.0.0/8,fd00::/8", ["10.0.0.0/8", "fd00::/8"]],
  paths: ["b,c", ["b,c"]],
  ip: ["::", "::"],
  address: ["[::1]:10249", "[::1]:10249"],
  gates: ["AllAlpha=false,X=true", { AllAlpha: false, X: true }],
  vmodule: ["proxier=4", [{ filePattern: "proxier", verbosity: 4 }]],
  version: ["raw", "raw"],
};

Deno.test("every flag is read as typed in each of its commands, and nothing else with it", {
  permissions: "none",
}, () => {
  for (const flag of FLAGS) {
    const { name, short, kind, note, commands } = flag;
    for (const command of commands) {
      const [choice] = valuesOf(flag, command) ?? [];
      const isChosen = choice !== undefined && kind !== "version";
      const [text, value] = isChosen ? [choice, kind === "list" ? [choice] : choice] : TYPED[kind];
      for (const words of [[`--${name}=${text}`], ...short === undefined ? [] : [[`-${short}=${text}`]]]) {
        const flags = parseArgs([command, ...words]);
        assertEquals(flags.get(name), value as never, name);
        assertEquals([...flags.values.keys()], [name]);
        assertEquals(flags.command, command);
        assertEquals(flags.warnings.length, note === undefined ? 0 : 1, name);
        if (note !== undefined) assert(flags.warnings[0]?.startsWith(`Flag --${name} has been deprecated, `));
      }
    }
  }
});

/** Words → the flags of `run` that are given, or what is wrong; by pflag's rules, of which `parseArgs` of `@std/cli` breaks most. */
const RULES: readonly (readonly [
  rule: string,
  words: readonly string[],
  given: Partial<Record<FlagName, unknown>> | string,
])[] = [
  ["a value follows in the same word or the next", ["--v=2"], { v: 2 }],
  ["a value follows in the same word or the next", ["--v", "2"], { v: 2 }],
  ["a value follows in the same word or the next", ["-v", "2"], { v: 2 }],
  ["a letter's value begins right behind it, or after =", ["-v2"], { v: 2 }],
  ["a letter's value begins right behind it, or after =", ["--v=1", "-v=2"], { v: 2 }],
  ["letters stand together, the last with its value", ["-hv4"], { help: true, v: 4 }],
  ["a value may have =", ["--master=a=b"], { master: "a=b" }],
  ["a name may have underscores", ["--cluster_cidr=10.0.0.0/8"], { "cluster-cidr": "10.0.0.0/8" }],
  ["the next word is the value, whatever it begins with", ["--oom-score-adj", "-998"], {
    "oom-score-adj": -998,
  }],
  ["the next word is the value, whatever it begins with", ["--config", "--odd"], { config: "--odd" }],
  ["the next word is the value, even --", ["--hostname-override", "--", "-v2"], {
    "hostname-override": "--",
    v: 2,
  }],
  ["the next word is the value, even a blank one", ["--resource-container", "", "-v2"], {
    "resource-container": "",
    v: 2,
  }],
  ["a switch takes Go's words, behind = only", ["--cleanup=F"], { cleanup: false }],
  [
    "a switch takes Go's words, behind = only",
    ["--cleanup=maybe"],
    'Invalid value "maybe" for --cleanup: want true or false',
  ],
  ["a switch that is off is one that was given", ["--profiling=false"], { profiling: false }],
  [
    "the first mistake is the one that is reported",
    ["--v=high", "--nonsense", "--v=2"],
    'Invalid value "high" for --v: want an integer from 0 to 2147483647',
  ],
];

Deno.test("words are read by pflag's rules", { permissions: "none" }, () => {
  for (const [rule, words, given] of RULES) {
    for (const command of [["run"], []]) {
      let found: unknown;
      try {
        found = Object.fromEntries(parseArgs([...command, ...words]).values);
      } catch (error) {
        if (!(error instanceof UsageError)) throw error;
        found = error.message;
      }
      assertEquals(found, given, `${rule}: ${words.join(" ")}`);
    }
  }
});

Deno.test("the last value wins, lists add up, a deprecated flag warns once", { permissions: "none" }, () => {
  const flags = parseArgs([
    "--proxy-mode=ipvs",
    "--proxy-mode=iptables",
    "--nodeport-addresses=10.0.0.0/8",
    "--nodeport-addresses=fd00::/8,192.168.0.0/16",
    "--logtostderr",
    "--logtostderr=false",
  ]);
  assertEquals(flags.get("proxy-mode"), "iptables");
  assertEquals(flags.get("nodeport-addresses"), ["10.0.0.0/8", "fd00::/8", "192.168.0.0/16"]);
  assertEquals(flags.warnings, [
    "Flag --logtostderr has been deprecated, it has no effect: kproxy logs to standard error",
  ]);
});

Deno.test("the first word names the command; flags alone belong to run", { permissions: "none" }, () => {
  const cases: [argv: readonly string[], command: string, operands: readonly string[]][] = [
    [[], "help", []],
    [["--help"], "help", []],
    [["-h"], "help", []],
    [["--version"], "run", []],
    [["run"], "run", []],
    [["--config=x", "--help"], "run", []],
    [["write-config", "out.yaml", "-o=json"], "write-config", ["out.yaml"]],
    [["write-config", "--", "--odd-name"], "write-config", ["--odd-name"]],
    [["help", "render"], "help", ["render"]],
    [["completion", "zsh"], "completion", ["zsh"]],
    [["version"], "version", []],
  ];
  for (const [argv, command, operands] of cases) {
    const flags: ParsedFlags = parseArgs(argv);
    assertEquals([flags.command, flags.operands], [command, operands], argv.join(" "));
  }
});

Deno.test(
  "wrong use is reported in one line that says what was probably meant",
  { permissions: "none" },
  () => {
    const cases: [argv: string, message: string][] = [
      ["runn", 'Unknown command "runn": did you mean "run"?'],
      ["writeconfig", 'Unknown command "writeconfig": did you mean "write-config"?'],
      [
        "bogus",
        'Unknown command "bogus": want run, write-config, cleanup, render, status, trace, explain, service, check, diff, doctor, selftest, sysdump, version, help, completion',
      ],
      ["--confg=x", 'Unknown flag "--confg": did you mean "--config"?'],
      ["run --clustercidr=10.0.0.0/8", 'Unknown flag "--clustercidr": did you mean "--cluster-cidr"?'],
      ["run --proxymode ipvs", 'Unknown flag "--proxymode": did you mean "--proxy-mode"?'],
      [
        "run --conntrack-max-per",
        'Unknown flag "--conntrack-max-per": did you mean "--conntrack-max-per-core"?',
      ],
      ["run --nonsense", 'Unknown flag "--nonsense"'],
      ["run -x", 'Unknown flag "-x"'],
      ["run -config=a", 'Unknown flag "-config=a": did you mean "--config"?'],
      ["version --confg=x", 'Unknown flag "--confg"'],
      [
        "run --logging-format=jsn",
        'Invalid value "jsn" for --logging-format: want text or json: did you mean "json"?',
      ],
      ["run --oom_score_adj=low", 'Invalid value "low" for --oom-score-adj: want an integer'],
      ["run -v=high", 'Invalid value "high" for -v: want an integer from 0 to 2147483647'],
      ["run --udp-timeout=5", 'Invalid value "5" for --udp-timeout: want a duration like 30s or 1h30m'],
      ["run --master", 'Flag "--master" needs a value: write --master=VALUE'],
      ["run -v", 'Flag "-v" needs a value: write -v=VALUE'],
      ["run x", '"kproxy run" does not take any arguments, got ["x"]'],
      ["run x y", '"kproxy run" does not take any arguments, got ["x" "y"]'],
      ["run -", '"kproxy run" does not take any arguments, got ["-"]'],
      [
        "--cleanup true",
        '"kproxy run" does not take any arguments, got ["true"]: write a switch\'s value with "=", as --flag=true',
      ],
      ["write-config a b", '"kproxy write-config" takes one FILE at most, got ["a" "b"]'],
      ["run --dry-run", 'Flag "--dry-run" does not belong to "kproxy run", but to: cleanup'],
      [
        "version --config=x",
        'Flag "--config" does not belong to "kproxy version", but to: run, write-config, render, trace, explain, service, check, diff, doctor, cleanup, status, selftest, sysdump',
      ],
    ];
    for (const [argv, message] of cases) {
      const error = assertThrows(() => parseArgs(argv.split(" ")), UsageError);
      assertEquals(error.message, message, argv);
      assert(!error.message.includes("\n"));
    }
  },
);

/** Command lines found in deployments, after the program's name. */
const IN_THE_WILD: readonly [where: string, argv: readonly string[], warned: readonly FlagName[]][] = [
  ["kubeadm", ["--config=/var/lib/kube-proxy/config.conf", "--hostname-override=node-1"], []],
  ["DaemonSet of a managed cluster", ["--v=2", "--config=/var/lib/kube-proxy-config/config"], []],
  [
    "managed cluster of the time of 1.10",
    ["--masquerade-all", "--resource-container=", "--oom-score-adj=-998", "--master=https://10.0.0.1"],
    ["resource-container"],
  ],
  [
    "unit file of the time of 1.11",
    (
      "--bind-address=0.0.0.0 --cleanup-ipvs=true --cluster-cidr=10.254.0.0/16 --hostname-override=192.168.1.10 " +
      "--healthz-bind-address=0.0.0.0 --healthz-port=10256 --masquerade-all=true --proxy-mode=ipvs " +
      "--ipvs-min-sync-period=5s --ipvs-sync-period=5s --ipvs-scheduler=wrr " +
      "--kubeconfig=/etc/kubernetes/kube-proxy.kubeconfig --logtostderr=true --v=2"
    ).split(" "),
    ["healthz-port", "logtostderr"],
  ],
  [
    "static Pod that logs to a file",
    (
      "--kubeconfig=/var/lib/kube-proxy/kubeconfig --master=https://127.0.0.1 --cluster-cidr=100.96.0.0/11 " +
      "--conntrack-max-per-core=131072 --hostname-override=ip-10-0-1-5.ec2.internal --oom-score-adj=-998 --v=2 " +
      "--logtostderr=false --alsologtostderr --log-file=/var/log/kube-proxy.log --log_file_max_size 1800"
    ).split(" "),
    ["alsologtostderr", "log-file", "log-file-max-size", "logtostderr"],
  ],
  [
    "every flag of 1.11's own",
    (
      "--cleanup=false --config-sync-period=15m0s --conntrack-max=0 --conntrack-min=131072 " +
      "--conntrack-tcp-timeout-close-wait=1h0m0s --conntrack-tcp-timeout-established=24h0m0s " +
      "--feature-gates=SupportIPVSProxyMode=true --iptables-masquerade-bit=14 --iptables-min-sync-period=0s " +
      "--iptables-sync-period=30s --kube-api-burst=10 --kube-api-content-type=application/vnd.kubernetes.protobuf " +
      "--kube-api-qps=5 --metrics-bind-address=127.0.0.1:10249 --nodeport-addresses= --profiling=false " +
      "--proxy-port-range= --udp-timeout=250ms --log-backtrace-at=:0 --log-dir= --stderrthreshold=2 --vmodule= " +
      "--log-flush-frequency=5s --alsologtostderr=false --google-json-key= --azure-container-registry-config="
    ).split(" "),
    [
      "alsologtostderr",
      "azure-container-registry-config",
      "conntrack-max",
      "google-json-key",
      "log-backtrace-at",
      "log-dir",
      "stderrthreshold",
    ],
  ],
  [
    "newest flags",
    (
      "--detect-local-mode=InterfaceNamePrefix --pod-interface-name-prefix=veth --iptables-localhost-nodeports=false " +
      "--conntrack-tcp-be-liberal --conntrack-udp-timeout=30s --conntrack-udp-timeout-stream=180s " +
      "--nodeport-addresses=primary --init-only --logging-format=json --bind-address-hard-fail"
    ).split(" "),
    [],
  ],
];

Deno.test("command lines of kube-proxy from real deployments are taken, with and without run", {
  permissions: "none",
}, () => {
  for (const [where, argv, warned] of IN_THE_WILD) {
    for (const flags of [parseArgs(argv), parseArgs(["run", ...argv])]) {
      assertEquals(flags.command, "run", where);
      const expected = warned.map((name) => `Flag --${name} has been deprecated`);
      assertEquals(flags.warnings.map((warning) => warning.split(",")[0]).toSorted(), expected, where);
    }
  }
  const old = parseArgs(IN_THE_WILD[3]?.[1] ?? []);
  assertEquals(old.get("ipvs-scheduler"), "wrr");
  assertEquals(old.get("healthz-bind-address"), "0.0.0.0");
  assertEquals(old.get("cleanup"), undefined);
});

Deno.test("a flag with few values takes those, a blank one, and suggests the nearest", {
  permissions: "none",
}, () => {
  const read = (text: string) => parseArgs(["doctor", `--migrate-to=${text}`]).get("migrate-to");
  assertEquals([read("ipvs"), read("")], ["ipvs", ""]);
  const wanted = "want iptables, ipvs or nftables";
  const cases = [["iptable", `${wanted}: did you mean "iptables"?`], ["ebpf", wanted], [
    "IPVS",
    `${wanted}: did you mean "ipvs"?`,
  ]];
  for (const [text = "", problem] of cases) {
    const { message } = assertThrows(() => read(text), UsageError);
    assertEquals(message, `Invalid value "${text}" for --migrate-to: ${problem}`);
  }
});

Deno.test("every flag of the command has its value, given or default, and no flag of another one is there", {
  permissions: "none",
}, () => {
  const flags = parseArgs([
    "run",
    "--proxy-mode=nftables",
    "-v=4",
    "--iptables-sync-period=1m",
    "--manifests=a,b",
  ]);
  const texts = new Map(flags.texts());
  assertEquals([...texts.keys()], [...texts.keys()].sort());
  const ofRun = FLAGS.filter(({ commands }) => commands.includes("run")).map(({ name }) => name);
  assertEquals([...texts.keys()], ofRun.sort());
  assertEquals(ofRun.length < FLAGS.length, true, "no flag belongs to other commands alone");
  for (
    const [name, text] of [
      ["proxy-mode", "nftables"],
      ["v", "4"],
      ["iptables-sync-period", "1m0s"],
      ["manifests", "[a,b]"],
      ["ipvs-sync-period", "30s"],
      ["cleanup", "false"],
      ["nodeport-addresses", "[]"],
      ["cluster-cidr", ""],
    ] as const
  ) assertEquals(texts.get(name), text, name);
});
