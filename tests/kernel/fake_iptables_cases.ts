/**
 * What is asked of the real iptables programs and of their fake alike: every method of `Iptables` and every restore
 * feature that the difference, the staging and the cleanup use.
 *
 * @module
 */
import { ExecError } from "../../lib/errors.ts";
import type { Iptables } from "../../lib/kernel/iptables.ts";
import type { IpFamily } from "../../lib/model/objects.ts";

/** What a step gave, in a form that can be compared. */
export type Outcome = boolean | string | null;

/** A sequence of steps on one fresh kernel. Outcomes and tables after it must be equal. */
export interface FakeCase {
  readonly name: string;
  readonly run: (iptables: Iptables, step: Stepper) => Promise<void>;
}

/** Records what one step gave: its value, or `status N` and the kind of failure. */
export type Stepper = (work: Promise<boolean | string | void>) => Promise<void>;

/** Runs a step and says what came of it. The words of a failure may differ, its status and meaning may not. */
export async function outcomeOf(work: Promise<boolean | string | void>): Promise<Outcome> {
  try {
    return await work ?? null;
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    const around = error.stderr.split("\n").filter((line) => line.startsWith("> "));
    return [`status ${error.code}`, ...(error.isNotFound() ? ["not found"] : []), ...around].join(", ");
  }
}

const TWO_CHAINS = "*nat\n:KUBE-A - [0:0]\n:KUBE-B - [0:0]\n" +
  '-A KUBE-A -m comment --comment "first of all" -j KUBE-B\n-A KUBE-A -p tcp -m tcp --dport 80 -j KUBE-B\n' +
  "-A KUBE-A -p udp -m udp --dport 53 -j RETURN\nCOMMIT\n";

function restoring(name: string, ...texts: string[]): FakeCase {
  return {
    name,
    run: async (iptables, step) => {
      for (const text of [TWO_CHAINS, ...texts]) await step(iptables.restore(text));
    },
  };
}

/** A single-block restore of `lines` on table nat. */
function nat(...lines: string[]): string {
  return ["*nat", ...lines, "COMMIT", ""].join("\n");
}

/** Loopback and any address of a family, as texts in rules. */
function addresses(family: IpFamily): { one: string; net: string; other: string } {
  return family === "IPv4"
    ? { one: "10.96.10.1", net: "10.244.0.0/16", other: "10.244.0.11:8080" }
    : { one: "fd00:10:96::9", net: "fd00:10:244::/56", other: "[fd00:10:244::91]:8080" };
}

const METHODS: readonly FakeCase[] = [
  {
    name: "absence gives no reason where the family works",
    run: (ipt, step) => step(ipt.absence().then(String)),
  },
  {
    name: "a restore of two tables keeps what it does not name",
    run: async (ipt, step) => {
      await step(ipt.restore(TWO_CHAINS));
      const both = "*filter\n:KUBE-F - [0:0]\nCOMMIT\n*nat\n:KUBE-N - [0:0]\nCOMMIT\n";
      await step(ipt.restore(both, { counters: false }));
      await step(ipt.restore(nat("-A POSTROUTING -j KUBE-A")).then(() => true));
    },
  },
];

const RESTORES: readonly FakeCase[] = [
  restoring("a chain line makes a chain and empties one", nat(":KUBE-A - [0:0]", ":KUBE-C - [0:0]")),
  restoring(
    "rules are inserted by number and at the top",
    nat("-I KUBE-A 2 -j ACCEPT", "-I KUBE-A -j RETURN"),
  ),
  restoring("a rule is inserted just after the last", nat("-I KUBE-A 4 -j ACCEPT")),
  restoring("an index beyond the end is refused", nat("-I KUBE-A 9 -j ACCEPT")),
  restoring("a rule is replaced", nat("-R KUBE-A 2 -p tcp -m tcp --dport 81 -j KUBE-B")),
  restoring("a replacement beyond the end is refused", nat("-R KUBE-A 4 -j KUBE-B")),
  restoring("rules are deleted by number, one after the other", nat("-D KUBE-A 3", "-D KUBE-A 1")),
  restoring("a deletion beyond the end is refused", nat("-D KUBE-A 4")),
  restoring("a rule is deleted by its text", nat("-D KUBE-A -p tcp -m tcp --dport 80 -j KUBE-B")),
  restoring("a rule that is not there is not deleted", nat("-D KUBE-A -p tcp -m tcp --dport 81 -j KUBE-B")),
  restoring(
    "only the first of two equal rules is deleted",
    nat("-A KUBE-B -j RETURN", "-A KUBE-B -j RETURN"),
    nat("-D KUBE-B -j RETURN"),
  ),
  restoring(
    "a chain is emptied, left by its caller and deleted",
    nat(":KUBE-A - [0:0]", ":KUBE-B - [0:0]", "-X KUBE-B"),
  ),
  restoring("a chain that is still called is not deleted", nat("-F KUBE-B", "-X KUBE-B")),
  restoring("a missing chain is not deleted", nat("-X KUBE-NONE")),
  restoring("a missing chain is not flushed", nat("-F KUBE-NONE")),
  restoring("a chain is not made twice", nat("-N KUBE-A")),
  restoring("a chain is made", nat("-N KUBE-C", "-A KUBE-C -j KUBE-A")),
  restoring("a rule in a missing chain is refused", nat("-A KUBE-NONE -j ACCEPT")),
  restoring(
    "a refused block changes nothing, not even what came before",
    nat(":KUBE-A - [0:0]", "-A KUBE-A -j ACCEPT", "-D KUBE-A 7"),
  ),
  restoring(
    "blocks are transactions of their own",
    nat(":KUBE-C - [0:0]") + nat("-D KUBE-A 9") + nat(":KUBE-D - [0:0]"),
  ),
  restoring(
    "blocks of one table see each other",
    nat(":KUBE-C - [0:0]", "-A KUBE-C -j RETURN") + nat("-A KUBE-A -j KUBE-C"),
  ),
  restoring("a text without COMMIT changes nothing", "*nat\n:KUBE-C - [0:0]\n-A KUBE-C -j KUBE-A\n"),
  restoring("a line that is no command is refused", nat("garbage"), "garbage\n"),
  restoring(
    "comments and empty lines are skipped",
    "# hello\n\n*nat\n# there\n:KUBE-C - [0:0]\nCOMMIT\n# end\n",
  ),
  restoring(
    "checks and listings change nothing",
    nat("-C KUBE-A -p tcp -m tcp --dport 80 -j KUBE-B", "-S KUBE-A", "-S POSTROUTING"),
  ),
  {
    name: "rules as a service proxy writes them",
    run: async (ipt, step) => {
      const { one, net, other } = addresses(ipt.family);
      await step(ipt.restore(proxyRules(one, net, other)));
      await step(ipt.restore(nat(
        `-C KUBE-SERVICES -m comment --comment "shop/web:http cluster IP" -m tcp -p tcp -d ${one} --dport 80 -j KUBE-SVC-A`,
        "-C KUBE-MARK-MASQ -j MARK --or-mark 0x00004000",
        `-D KUBE-SEP-A -m comment --comment shop/web:http -s ${
          other.replace(/^\[?(.*?)\]?:\d+$/, "$1")
        } -j KUBE-MARK-MASQ`,
      )));
    },
  },
];

function proxyRules(one: string, net: string, other: string): string {
  const ip = other.replace(/^\[?(.*?)\]?:\d+$/, "$1");
  return `*filter
:KUBE-SERVICES - [0:0]
:KUBE-FORWARD - [0:0]
-A KUBE-SERVICES -m comment --comment "ops/empty:grpc has no endpoints" -m tcp -p tcp -d ${one} --dport 50051 -j REJECT
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x00004000/0x00004000 -j ACCEPT
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-I FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
COMMIT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-SVC-A - [0:0]
:KUBE-SEP-A - [0:0]
:KUBE-SEP-B - [0:0]
-A KUBE-POSTROUTING -m mark ! --mark 0x00004000/0x00004000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x00004000
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
-A KUBE-MARK-MASQ -j MARK --or-mark 0x00004000
-A KUBE-SERVICES -m comment --comment "shop/web:http cluster IP" -m tcp -p tcp -d ${one} --dport 80 -j KUBE-SVC-A
-A KUBE-NODEPORTS -m comment --comment shop/web:http -m tcp -p tcp --dport 30080 -j KUBE-SVC-A
-A KUBE-SVC-A -m comment --comment "shop/web:http cluster IP" -m tcp -p tcp -d ${one} --dport 80 ! -s ${net} -j KUBE-MARK-MASQ
-A KUBE-SVC-A -m comment --comment "shop/web:http -> ${other}" -m recent --name KUBE-SEP-A --rcheck --seconds 600 --reap -j KUBE-SEP-A
-A KUBE-SVC-A -m comment --comment "shop/web:http -> ${other}" -m statistic --mode random --probability 0.5000000000 -j KUBE-SEP-A
-A KUBE-SVC-A -m comment --comment "shop/web:http -> ${other}" -j KUBE-SEP-B
-A KUBE-SEP-A -m comment --comment shop/web:http -s ${ip} -j KUBE-MARK-MASQ
-A KUBE-SEP-A -m comment --comment shop/web:http -m recent --name KUBE-SEP-A --set -m tcp -p tcp -j DNAT --to-destination ${other}
-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
COMMIT
`;
}

/** All cases. */
export const FAKE_CASES: readonly FakeCase[] = [...METHODS, ...RESTORES];
