import { assertEquals, assertMatch, assertRejects } from "@std/assert";
import { UnsupportedError } from "../errors.ts";
import { FakeIptables, type FakeIptablesOptions } from "../../tests/support/fake_iptables.ts";
import type { Exec } from "./exec.ts";
import { chooseIptablesVariant, probeIptables } from "./iptables_variant.ts";

const LEGACY = ["iptables-legacy", "iptables-legacy-save", "ip6tables-legacy", "ip6tables-legacy-save"];
const NFT = ["iptables-nft", "iptables-nft-save", "ip6tables-nft", "ip6tables-nft-save"];

interface VariantCase {
  readonly name: string;
  readonly machine?: FakeIptablesOptions;
  /** Commands that others ran before. */
  readonly before: readonly string[];
  readonly expected: string;
}

const CASES: readonly VariantCase[] = [
  {
    name: "no kubelet and no proxy was here: the system's default, nft",
    before: [],
    expected: "nft is the system's default",
  },
  {
    name: "no kubelet and no proxy was here: the system's default, legacy",
    machine: { variant: "legacy" },
    before: [],
    expected: "legacy is the system's default",
  },
  {
    name: "kubelet's hint in legacy",
    before: ["iptables-legacy -N KUBE-IPTABLES-HINT -t mangle"],
    expected: "legacy holds KUBE-IPTABLES-HINT (IPv4)",
  },
  {
    name: "an older kubelet's canary in nft, the default being legacy",
    machine: { variant: "legacy" },
    before: ["ip6tables-nft -N KUBE-KUBELET-CANARY -t mangle"],
    expected: "nft holds KUBE-KUBELET-CANARY (IPv6)",
  },
  {
    name: "a service proxy's rules in legacy",
    before: ["iptables-legacy -N KUBE-POSTROUTING -t nat"],
    expected: "legacy holds KUBE-POSTROUTING (IPv4)",
  },
  {
    name: "kubelet in legacy beats leftovers of a service proxy in nft",
    before: ["iptables-nft -N KUBE-SERVICES -t nat", "iptables-legacy -N KUBE-KUBELET-CANARY -t mangle"],
    expected: "legacy holds KUBE-KUBELET-CANARY (IPv4)",
  },
  {
    name: "hints through the plain programs, where none carry the variant in their name",
    machine: { variant: "legacy", missing: [...NFT, ...LEGACY] },
    before: ["iptables -N KUBE-KUBELET-CANARY -t mangle"],
    expected: "legacy holds KUBE-KUBELET-CANARY (IPv4)",
  },
  {
    name: "chains of others say nothing",
    before: ["iptables-legacy -N CNI-HOSTPORT -t nat", "iptables-legacy -N KUBE-FIREWALL -t filter"],
    expected: "nft is the system's default",
  },
];

for (const { name, machine, before, expected } of CASES) {
  Deno.test(`variant: ${name}`, { permissions: "none" }, async () => {
    const fake = new FakeIptables(machine);
    for (const command of before) assertEquals((await fake.run(command.split(" "))).code, 0, command);
    const { variant, reason } = await chooseIptablesVariant(fake);
    assertEquals(reason, expected);
    assertEquals(expected.split(" ")[0], variant);
  });
}

Deno.test(
  "asking for hints does not create tables of the legacy variant",
  { permissions: "none" },
  async () => {
    const fake = new FakeIptables();
    await fake.run(["iptables-nft", "-N", "KUBE-KUBELET-CANARY", "-t", "mangle"]);
    await chooseIptablesVariant(fake);
    assertEquals(fake.saved("IPv4", undefined, "legacy"), "");
  },
);

/** Programs of these names can tell their version and nothing else. */
function without(programs: RegExp): Exec {
  const fake = new FakeIptables();
  return {
    run: (argv) =>
      programs.test(argv[0] ?? "") && !argv.includes("--version")
        ? Promise.resolve({ code: 1, stdout: "", stderr: "Failed to initialize nft: Protocol not supported" })
        : fake.run(argv),
  };
}

Deno.test("variant: the other one where the default does not work", { permissions: "none" }, async () => {
  const exec = without(/^ip6?tables(-nft)?(-save)?$/);
  const { variant, reason } = await chooseIptablesVariant(exec);
  assertEquals(variant, "legacy");
  assertMatch(reason, /^only legacy works here: .*Failed to initialize nft/);
});

Deno.test(
  "variant: the one that works for the primary family, else for any",
  { permissions: "none" },
  async () => {
    const withoutIpv4 = without(/^iptables(-nft)?(-save)?$/);
    assertMatch((await chooseIptablesVariant(withoutIpv4)).reason, /^only legacy works here/);
    const { reason } = await chooseIptablesVariant(withoutIpv4, "IPv6");
    assertEquals(reason, "nft is the system's default");
    const withoutAny = without(/^iptables/);
    assertEquals((await chooseIptablesVariant(withoutAny)).reason, "nft is the system's default");
  },
);

Deno.test("variant: the default stays the default while another program holds its lock", {
  permissions: "none",
}, async () => {
  const fake = new FakeIptables({ variant: "legacy" });
  fake.holdLock(2);
  assertEquals((await chooseIptablesVariant(fake)).reason, "legacy is the system's default");
});

Deno.test("variant: nothing works", { permissions: "none" }, async () => {
  const missing = ["iptables", "ip6tables", ...LEGACY, ...NFT];
  const error = await assertRejects(
    () => chooseIptablesVariant(new FakeIptables({ missing })),
    UnsupportedError,
  );
  assertEquals(error.feature, "iptables");
});

Deno.test("the plain program is preferred where it speaks the variant", { permissions: "none" }, async () => {
  const fake = new FakeIptables();
  assertEquals((await probeIptables(fake, "IPv6", "nft")).programs.restore, "ip6tables-restore");
  assertEquals((await probeIptables(fake, "IPv4", "legacy")).programs.save, "iptables-legacy-save");
  await assertRejects(
    () => probeIptables(new FakeIptables({ missing: LEGACY }), "IPv4", "legacy"),
    UnsupportedError,
    "found iptables: 1.8.9 (nft), iptables-legacy: missing",
  );
});
