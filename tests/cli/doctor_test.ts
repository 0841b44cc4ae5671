/**
 * `kproxy doctor` as users run it, on a machine whose programs are all stand-ins.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { ROOT } from "../../tools/project_files.ts";
import { eventually } from "../support/until.ts";
import { inFolder, inTime, kproxyArgv, type Run } from "./kproxy.ts";

/** Programs of a node that is well, in the words of sh: nothing else is on the PATH. */
const PROGRAMS: Readonly<Record<string, string>> = {
  nft:
    `case "$*" in --version) echo "nftables v1.0.6 (Lester Gooch #5)";; "-c -f -") while read -r _; do :; done;; esac`,
  sysctl: `case "$1" in
  --version) echo "sysctl from procps-ng 4.0.2";;
  *) for name; do case $name in *disable_ipv6) echo "$name = 0";; *_max) echo "$name = 1000";; *) echo "$name = 1";; esac; done;;
esac`,
  ip: `case "$*" in -V) echo "ip utility, iproute2-6.1.0";; *route*) echo '[{"dst":"default","dev":"eth0"}]';;
  *netconf) echo '[{"family":"inet","interface":"all","rp_filter":"off"}]';;
  *) echo '[{"ifname":"eth0","mtu":1500,"flags":["UP"]}]';; esac`,
  conntrack: `echo "conntrack v1.4.7 (conntrack-tools)"`,
  nfacct: `echo "nfacct v1.0.2"`,
  choom: `echo "choom from util-linux 2.38.1"`,
  // A family without a table.
  ip6tables:
    `case "$*" in *-S*) echo "ip6tables: can't initialize table nat: Table does not exist" >&2; exit 3;; *) echo "ip6tables v1.8.9 (nf_tables)";; esac`,
  iptables: `case "$*" in *-S*) echo "-P FORWARD ACCEPT";; *) echo "iptables v1.8.9 (nf_tables)";; esac`,
};

const FLAGS = [
  "--hostname-override=node-a",
  "--proxy-mode=nftables",
  "--metrics-bind-address=127.0.0.1:1",
  "--conntrack-max-per-core=0",
  "--conntrack-tcp-timeout-established=0s",
  "--conntrack-tcp-timeout-close-wait=0s",
];

function isManifests(arg: string): boolean {
  return arg.startsWith("--manifests=");
}

async function doctor(
  args: readonly string[],
  programs: Readonly<Record<string, string>> = {},
): Promise<Run> {
  const once = () => doctorOnce(args, programs);
  // One that hangs takes all the time that there is.
  return await (programs["ip"] === undefined ? inTime(once) : once());
}

async function doctorOnce(
  args: readonly string[],
  programs: Readonly<Record<string, string>>,
): Promise<Run> {
  return await inFolder({}, async (folder) => {
    for (const [name, script] of Object.entries({ ...PROGRAMS, ...programs })) {
      await Deno.writeTextFile(`${folder}/${name}`, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
    }
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: [
        ...kproxyArgv(),
        "doctor",
        ...FLAGS,
        ...(args.some(isManifests) ? [] : [`--manifests=${ROOT}/examples/demo`]),
        ...args,
      ],
      env: { PATH: folder },
    }).output();
    const decoder = new TextDecoder();
    // The runtime itself tells of programs on its list that are not there.
    const err = decoder.decode(stderr).replace(/^.*Failed to resolve.*\n/gm, "");
    return { code, out: decoder.decode(stdout), err };
  });
}

Deno.test("a node that is well has exit status 0, and every check is reported", async () => {
  const { code, out, err } = await doctor([]);
  assertEquals([code, err], [0, ""], out);
  assertStringIncludes(out, "ok  mode                 nftables works here\n");
  assertStringIncludes(out, "ok  programs             ipvsadm is not on the PATH; only mode ipvs needs it\n");
  assertStringIncludes(out, "ok  forwarding           net.ipv4.ip_forward is 1\n");
  assertMatch(out, /\nNode node-a, mode nftables: no failures, no warnings, \d+ ok\n$/);
});

Deno.test("files that are not there are a failure, objects that no proxy serves a warning", async () => {
  const nowhere = await doctor(["--manifests=/nowhere"]);
  assertEquals(nowhere.code, 1, nowhere.out);
  assertMatch(nowhere.out, /^FAILURE {2}manifests +.*\/nowhere/);
  await inFolder(
    { "bad.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: 7\n" },
    async (folder) => {
      const { code, out } = await doctor([`--manifests=${folder}`]);
      assertEquals(code, 0, out);
      assertMatch(out, /warning {2}manifests +1 object left out: .*bad\.yaml:4 .*Service default\/x: spec/);
    },
  );
});

Deno.test("a failure comes first, with its fix below, and ends with 1", async () => {
  const sysctl =
    `case "$*" in *net.ipv4.ip_forward*) echo "net.ipv4.ip_forward = 0"; for name; do case $name in
    *ip_forward) ;; *disable_ipv6) echo "$name = 0";; *_max) echo "$name = 1000";; *) echo "$name = 1";; esac; done;; *) ${
      PROGRAMS["sysctl"]
    };; esac`;
  const { code, out } = await doctor([], { sysctl });
  assertEquals(code, 1, out);
  const [first, second] = out.split("\n");
  assertMatch(first ?? "", /^FAILURE {2}forwarding +net\.ipv4\.ip_forward is 0: packets to and from pods/);
  assertMatch(second ?? "", /^ +-> sysctl -w net\.ipv4\.ip_forward=1, and keep it/);
  assertMatch(out, /\nNode node-a, mode nftables: 1 failure, no warnings, \d+ ok\n$/);
});

Deno.test("programs that hang, are killed, or print garbage without an end cost their own answers only, and are failures", async () => {
  // Where the machine stood still, other programs had no time either.
  await eventually(hangingAreTold, { limitMs: 60_000 });
});

async function hangingAreTold(): Promise<void> {
  const { code, out } = await doctor([], {
    ip: "exec /bin/sleep 100",
    conntrack: "while :; do echo garbage; done",
    choom: "kill -9 $$",
  });
  assertEquals(code, 1, out);
  assertMatch(out, /warning {2}packet sizes +could not be looked at: it took longer than 6 s/);
  assertMatch(
    out,
    /FAILURE {2}programs +ip does not end: ip -.* was still running after 6 s\n +-> see what it waits for/,
  );
  assertMatch(out, /FAILURE {2}programs +conntrack does not (?:end|come to its end): conntrack --version /);
  assertMatch(
    out,
    /FAILURE {2}programs +choom does not come to its end: choom --version was killed by signal SIGKILL\n/,
  );
  assertMatch(out, /ok {7}forwarding +net\.ipv4\.ip_forward is 1/);
}

Deno.test("-o json has a shape for programs, and --migrate-to the Services that would behave differently", async () => {
  const objects = `--manifests=${ROOT}/tests/golden/mixed-dual-stack/objects.yaml`;
  const { code, out } = await doctor([objects, "-o", "json", "--migrate-to=ipvs"]);
  const report = JSON.parse(out);
  assertEquals(Object.keys(report), [
    "apiVersion",
    "kind",
    "node",
    "mode",
    "result",
    "findings",
    "migration",
  ]);
  assertEquals([report.apiVersion, report.kind, report.node, report.mode], [
    "kproxy/v1",
    "DoctorReport",
    "node-a",
    "nftables",
  ]);
  // This machine has no ipvsadm.
  assertEquals([code, report.result], [1, "failure"]);
  for (const finding of report.findings) {
    assertEquals(Object.keys(finding), ["check", "level", "what", "fix"]);
  }
  const { migration } = report;
  assertEquals([migration.from, migration.to], ["nftables", "ipvs"]);
  assert(migration.services.length > 0 && migration.services.length <= migration.serviceCount);
  for (const { differences } of migration.services) {
    for (const difference of differences) assertEquals(Object.keys(difference), ["topic", "from", "to"]);
  }
  const text = await doctor([objects, "--migrate-to=ipvs"]);
  assertStringIncludes(
    text.out,
    "\nFrom mode nftables to mode ipvs\n\nFor every Service:\n  choice of endpoint\n",
  );
});

Deno.test("wrong use is reported before anything is looked at", async () => {
  const cases: readonly (readonly [args: readonly string[], err: RegExp])[] = [
    [["-o", "yaml"], /^Error: Invalid value "yaml" for -o: want text or json\n$/],
    [["--migrate-to="], /^Error: Name a mode: --migrate-to=iptables\|ipvs\|nftables\n$/],
    [["--migrate-to=ebpf"], /^Error: Invalid value "ebpf" for --migrate-to: /],
    [["--migrate-to=ipvs", "--manifests=/nowhere"], /^Error: .*\/nowhere/],
    [["now"], /^Error: "kproxy doctor" does not take any arguments/],
  ];
  for (const [args, wanted] of cases) {
    const { code, out, err } = await doctor(args);
    assertEquals([code, out], [2, ""], err);
    assertMatch(err, wanted);
  }
});
