/**
 * Checks of the programs that kproxy starts: whether they are there, new enough, and come to their end.
 *
 * @module
 */
import { MIN_NFT_VERSION } from "../../backend/nftables/node/preflight.ts";
import type { ProxyMode } from "../../config/types.ts";
import { ExecError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import { OLDEST_MAJOR } from "../../kernel/ipset.ts";
import { isAtLeast, MIN_IPTABLES_VERSION } from "../../kernel/iptables.ts";
import type { ProgramTrouble } from "./exec.ts";
import { failure, type Finding, ok, unknown, warning } from "./report.ts";

const CHECK = "programs";

interface Program {
  readonly name: string;
  /** What makes it print its version. @default {"--version"} */
  readonly versionFlag?: string;
  /** Of Debian; other systems have similar names. @default {name} */
  readonly packageName?: string;
  /** The modes that do not work without it. */
  readonly modes?: readonly ProxyMode[];
  /** What else does not work without it. */
  readonly otherwise?: string;
  /** Dotted; absent: any will do. */
  readonly minVersion?: string;
}

const PROGRAMS: readonly Program[] = [
  { name: "iptables", modes: ["iptables", "ipvs"], minVersion: MIN_IPTABLES_VERSION },
  {
    name: "ip6tables",
    packageName: "iptables",
    otherwise: "in modes iptables and ipvs Services do not answer on IPv6",
    minVersion: MIN_IPTABLES_VERSION,
  },
  { name: "nft", packageName: "nftables", modes: ["nftables"], minVersion: MIN_NFT_VERSION },
  { name: "ipvsadm", modes: ["ipvs"] },
  { name: "ipset", modes: ["ipvs"], minVersion: `${OLDEST_MAJOR}.0` },
  { name: "ip", versionFlag: "-V", packageName: "iproute2", modes: ["ipvs"] },
  { name: "conntrack", otherwise: "UDP flows stay with endpoints that are gone" },
  { name: "sysctl", packageName: "procps", otherwise: "kernel settings are neither read nor set" },
  { name: "nfacct", otherwise: "mode iptables does not count node ports on 127.0.0.1" },
  {
    name: "choom",
    packageName: "util-linux",
    otherwise: "the kernel may end kproxy first when memory is short",
  },
];

export type ProgramFact =
  | { readonly kind: "found"; /** Null if it prints something else. */ readonly version: string | null }
  | { readonly kind: "missing" }
  /** The runtime does not let kproxy start it. */
  | { readonly kind: "forbidden" };

/** Answers by name; a program that hangs costs only its own. */
export type ProgramFacts = ReadonlyMap<string, PromiseSettledResult<ProgramFact>>;

/** @param limited ends a wait at the doctor's limit */
export async function readPrograms(
  exec: Exec,
  limited: <T>(read: () => Promise<T>) => Promise<T>,
): Promise<ProgramFacts> {
  const answers = await Promise.allSettled(
    PROGRAMS.map(({ name, versionFlag = "--version" }) =>
      limited(() => readVersion(exec, [name, versionFlag]))
    ),
  );
  return new Map(PROGRAMS.flatMap(({ name }, index) => {
    const answer = answers[index];
    return answer === undefined ? [] : [[name, answer] as const];
  }));
}

async function readVersion(exec: Exec, argv: readonly string[]): Promise<ProgramFact> {
  try {
    // Some print it with a status, or among their errors: ipvsadm where the kernel has no IPVS.
    const { code, stdout, stderr } = await exec.run(argv);
    const [version = null] = code === 0 ? /\d+(?:\.\d+)+/.exec(`${stdout}\n${stderr}`) ?? [] : [];
    return { kind: "found", version };
  } catch (error) {
    if (!(error instanceof ExecError && error.isMissing())) throw error;
    const { NotCapable, PermissionDenied } = Deno.errors;
    const isForbidden = error.cause instanceof NotCapable || error.cause instanceof PermissionDenied;
    return { kind: isForbidden ? "forbidden" : "missing" };
  }
}

/** @param modes those that must work here */
export function checkPrograms(facts: ProgramFacts, modes: readonly ProxyMode[]): readonly Finding[] {
  return PROGRAMS.flatMap((program) => {
    const fact = facts.get(program.name);
    if (fact === undefined) return [];
    return [
      fact.status === "fulfilled" ? checkProgram(program, fact.value, modes) : unknown(CHECK, fact.reason),
    ];
  });
}

function checkProgram(program: Program, found: ProgramFact, running: readonly ProxyMode[]): Finding {
  const { name, packageName = name, modes = [], otherwise = "", minVersion } = program;
  const lacking = (what: string, mend: string): Finding => {
    const needing = modes.filter((mode) => running.includes(mode));
    if (needing.length > 0) {
      return failure(CHECK, `${what}: mode ${needing.join(" and ")} does not work`, mend);
    }
    if (otherwise !== "") return warning(CHECK, `${what}: ${otherwise}`, mend);
    return ok(CHECK, `${what}; only mode ${modes.join(" and ")} needs it`);
  };
  const install = `apt-get install ${packageName} (or your system's package with that program)`;
  if (found.kind === "forbidden") {
    return lacking(`${name} may not be started`, `give kproxy --allow-run=${name}`);
  }
  if (found.kind === "missing") return lacking(`${name} is not on the PATH`, install);
  const { version } = found;
  if (version !== null && minVersion !== undefined && !isAtLeast(version, minVersion)) {
    return lacking(`${name} ${version} is too old, kproxy needs ${minVersion}`, install);
  }
  return ok(CHECK, version === null ? `${name} is there and tells no version` : `${name} ${version}`);
}

/** One line for each program and kind of trouble: a start would meet them, too. */
export function checkTroubles(troubles: readonly ProgramTrouble[]): readonly Finding[] {
  return troubles.map(({ program, kind, words }) => {
    const [what, mend] = TROUBLES[kind];
    return failure(CHECK, `${program} ${what}: ${words}`, mend.replaceAll("PROGRAM", program));
  });
}

const TROUBLES: Readonly<Record<ProgramTrouble["kind"], readonly [what: string, mend: string]>> = {
  hangs: [
    "does not end",
    `see what it waits for: ps -C PROGRAM -o pid,stat,wchan:30,args; docs/operations.md, "Programs that hang"`,
  ],
  killed: [
    "does not come to its end",
    "see who ended it: dmesg tells of the kernel's memory killer; then try PROGRAM by hand",
  ],
  garbage: [
    "prints what is none of its outputs",
    "see which program it is: command -v PROGRAM; then install the real one",
  ],
};
