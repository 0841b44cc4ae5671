/**
 * Checks of the mode: whether it would work here, by the probes of a start without their writes; the rights of this process; and the
 * variant and the lock of iptables.
 *
 * @module
 */
import { chooseMode, type Modes } from "../../backend/node/choose_mode.ts";
import type { ModeContext, PreparedMode, PrepareMode } from "../../backend/node/mode.ts";
import { MODES } from "../../backend/node/registry.ts";
import type { KubeProxyConfiguration, ProxyMode } from "../../config/types.ts";
import { ExecError, UnsupportedError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import { NEEDS_RIGHTS, type RefusedFamily } from "../../kernel/ip_families.ts";
import { probeIpset } from "../../kernel/ipset.ts";
import {
  chooseIptablesVariant,
  holdsProxyRules,
  iptablesOfNode,
  mayHideRules,
} from "../../kernel/iptables_variant.ts";
import { type IptablesVariant, parseIptablesVersion, type XtablesLock } from "../../kernel/iptables.ts";
import { ipvsAbsence, Ipvsadm } from "../../kernel/ipvsadm.ts";
import { type NodeSysctls, nodeSysctls } from "../../kernel/sysctl.ts";
import { nodeIps } from "../../model/node.ts";
import { FAMILIES, type IpFamily } from "../../model/objects.ts";
import { errorText, type Logger, type LogValues, silentLogger } from "../../observe/log.ts";
import { type Doubt, failure, type Finding, ok, warning, warnings } from "./report.ts";

export type ModeFact =
  | {
    readonly kind: "works";
    readonly mode: ProxyMode;
    /** Modes that `auto` prefers, and why they do not work. */
    readonly passedOver: readonly { readonly mode: string; readonly reason: string }[];
    readonly refused: readonly Pick<RefusedFamily, "family" | "reason">[];
    /** Warnings that a start would log. */
    readonly warnings: readonly string[];
  }
  | {
    readonly kind: "unusable";
    readonly reason: string;
    /** True if only this process lacks the rights. */
    readonly lacksRights: boolean;
  };

/** Probes the configured mode, or those of `auto`, as a start does. */
export async function readMode(exec: Exec, config: KubeProxyConfiguration): Promise<ModeFact> {
  const warnings: string[] = [];
  const context = {
    exec,
    config,
    log: warningsOnly(warnings),
    sysctls: unwritten(await nodeSysctls(exec, silentLogger)),
  };
  try {
    const { mode, passedOver, prepared: { refused } } = await chooseMode(READING_MODES, context);
    return { kind: "works", mode, passedOver, refused, warnings };
  } catch (error) {
    if (!(error instanceof UnsupportedError)) throw error;
    return { kind: "unusable", reason: error.message, lacksRights: error.message.includes(NEEDS_RIGHTS) };
  }
}

/** Probes without writes. Those of nftables and iptables write only sysctls; that of IPVS, which writes sets and rules, is replaced. */
const READING_MODES: Modes = new Map<ProxyMode, PrepareMode>(
  [...MODES].map(([mode, prepare]) => [mode, mode === "ipvs" ? readIpvs : prepare]),
);

/** Probes IPVS by reading: programs, kernel, rights, families. Sets, matches and schedulers are tried by a start. */
async function readIpvs({ exec, config, sysctls }: ModeContext): Promise<PreparedMode> {
  try {
    await new Ipvsadm(exec).loads();
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    throw ipvsAbsence(error) ?? error;
  }
  await probeIpset(exec);
  const { primaryFamily } = nodeIps(null, config.bindAddress);
  const { refused } = await iptablesOfNode(exec, { primaryFamily, sysctls, log: silentLogger });
  return { proxiers: [], refused, reconfigure: () => [] };
}

/** Sysctls that report every change as done, and write none. */
function unwritten(sysctls: NodeSysctls): NodeSysctls {
  const change: NodeSysctls["change"] = (changes) =>
    Promise.resolve(changes.map(({ value }) => ({ kind: "unchanged", found: value })));
  return { ...sysctls, change };
}

/** A logger that keeps warnings, as one line each. */
function warningsOnly(warnings: string[]): Logger {
  return {
    ...silentLogger,
    warn: (message: string, values: LogValues = {}) => {
      const details = Object.entries(values).filter(([, value]) => value !== undefined)
        .map(([key, value]) => `${key} ${value instanceof Error ? errorText(value) : String(value)}`);
      warnings.push([message, ...details].join("; "));
    },
  };
}

/** @param wanted the configured mode, possibly `auto` */
export function checkMode(fact: ModeFact, wanted: string): readonly Finding[] {
  const check = "mode";
  const other = wanted === "iptables" ? "nftables" : "iptables";
  const fix = `install or load what it names, or choose another mode: --proxy-mode=${other}`;
  if (fact.kind === "unusable") {
    const asRoot = "run kproxy doctor as root, or with CAP_NET_ADMIN (legacy iptables: CAP_NET_RAW, too)";
    const what = `mode ${wanted} cannot run here: ${fact.reason}`;
    return [failure(check, what, fact.lacksRights ? asRoot : fix)];
  }
  const { mode, passedOver, refused, warnings } = fact;
  const why = passedOver.map((other) => `${other.mode}: ${other.reason}`).join("; ");
  return [
    wanted === mode || wanted === "auto"
      ? ok(check, `${mode} works here${why === "" ? "" : `; passed over ${why}`}`)
      : warning(check, `mode ${wanted} cannot run here and gives way to ${mode}: ${why}`, fix),
    ...refused.map(({ family, reason }) =>
      warning(
        check,
        `${family} is not served: ${reason}`,
        "fix that where the cluster uses it; else ignore it",
      )
    ),
    ...warnings.map((text) => warning(check, text, "see docs/operations.md")),
    ...mode === "ipvs"
      ? [ok(
        check,
        "matches, sets and schedulers of ipvs are tried by the start only, since that writes for a moment",
      )]
      : [],
  ];
}

/** Permissions of the runtime, and what does not work without them. */
const PERMISSIONS: readonly (readonly [Deno.PermissionDescriptor, otherwise: string])[] = [
  [{ name: "sys", kind: "hostname" }, "only --hostname-override names the node"],
  [{ name: "sys", kind: "cpus" }, "the connection tracking table is sized by the CPUs of this process"],
  [
    { name: "sys", kind: "networkInterfaces" },
    "the node's addresses are not known, and node ports do not follow them",
  ],
  [
    { name: "sys", kind: "osRelease" },
    "it is not known what this kernel needs of net.ipv4.vs.conn_reuse_mode",
  ],
  [{ name: "sys", kind: "uid" }, "missing rights show late"],
  [{ name: "net" }, "API server, health checks and metrics may be out of reach"],
  [{ name: "read" }, "configuration, kubeconfig, certificates and manifests may not be readable"],
];

/**
 * The user, null where the runtime may not say; and permission flags that the runtime was started without, e.g.
 * `--allow-sys=hostname`, with what fails without each. It prompts for no permission, and tries none.
 */
export function readRights() {
  const isGranted = (permission: Deno.PermissionDescriptor): boolean => {
    const { state, partial } = Deno.permissions.querySync(permission);
    return state === "granted" || partial;
  };
  const missing = PERMISSIONS.filter(([permission]) => !isGranted(permission));
  return {
    uid: isGranted({ name: "sys", kind: "uid" }) ? Deno.uid() : null,
    missing: missing.map(([permission, otherwise]) => {
      const kind = permission.name === "sys" ? `=${permission.kind}` : "";
      return [`--allow-${permission.name}${kind}`, otherwise] as const;
    }),
  };
}

/** @param mode undefined if it is unknown whether the mode works */
export function checkRights(
  { uid, missing }: ReturnType<typeof readRights>,
  mode: ModeFact | undefined,
): readonly Finding[] {
  const check = "rights";
  const user = uid === null ? "this user" : uid === 0 ? "root" : `user ${uid}`;
  const findings: Finding[] = [];
  if (mode?.kind === "unusable" && mode.lacksRights) {
    findings.push(failure(
      check,
      `${user} has no CAP_NET_ADMIN in this network namespace: rules can neither be read nor written`,
      "run as root, or: setpriv --ambient-caps=+net_admin,+net_raw --inh-caps=+net_admin,+net_raw",
    ));
  } else if (mode?.kind === "works") {
    findings.push(ok(check, `${user} may read and write rules`));
  }
  findings.push(
    ...missing.map(([flag, otherwise]) =>
      warning(check, `the runtime does not grant ${flag}: ${otherwise}`, `start kproxy with ${flag}`)
    ),
  );
  if (missing.length === 0) findings.push(ok(check, "the runtime grants all that kproxy asks for"));
  return findings;
}

/** Facts of {@linkcode readVariant}; null: iptables does not work here at all. */
export type VariantFact = Awaited<ReturnType<typeof readVariant>>;

const VARIANTS: readonly IptablesVariant[] = ["nft", "legacy"];

/** The node's iptables variant, service-proxy chains in the other one, and variants with hidden rules. */
export async function readVariant(exec: Exec, primaryFamily: IpFamily) {
  // Probes for hidden rules run the same listings as the choice: started together, each listing runs once.
  const [chosen, text, ...hidden] = await Promise.all([
    chooseIptablesVariant(exec, primaryFamily).catch((error) => {
      if (error instanceof UnsupportedError) return null;
      throw error;
    }),
    exec.run(["iptables", "--version"]).then(({ stdout }) => stdout, () => ""),
    ...VARIANTS.map(async (variant) =>
      (await Promise.all(FAMILIES.map((family) => mayHideRules(exec, family, variant)))).includes(true)
    ),
  ]);
  if (chosen === null) return null;
  const other: IptablesVariant = chosen.variant === "nft" ? "legacy" : "nft";
  const holds = await Promise.all(FAMILIES.map((family) => holdsProxyRules(exec, family, other)));
  return {
    chosen,
    /** Version of the program `iptables`; null if it prints none. */
    systemDefault: parseIptablesVersion(text),
    /** Families whose service-proxy chains are in the variant that is not chosen. */
    otherHolds: FAMILIES.filter((_family, index) => holds[index] === true),
    /** Variants whose rules this process may be unable to see. */
    unseen: VARIANTS.filter((_variant, index) => hidden[index] === true),
  };
}

/** @param mode the mode in use */
export function checkVariant(fact: VariantFact, mode: ProxyMode): readonly Finding[] {
  const check = "iptables variant";
  // The check of the mode reports that iptables does not work, if it matters.
  if (fact === null) return [];
  const { chosen: { variant, reason }, systemDefault, otherHolds, unseen } = fact;
  const isUnused = mode === "nftables" || mode === "auto";
  const other = variant === "nft" ? "legacy" : "nft";
  return [
    ok(check, `${variant}${isUnused ? ", which this mode does not use" : ""}: ${reason}`),
    ...warnings(check, null, [
      systemDefault !== null && systemDefault.variant !== variant && [
        `the program iptables is the ${systemDefault.variant} variant, and the rules of this node are in ${variant}: ` +
        `what is written by hand lands beside them`,
        `update-alternatives --set iptables /usr/sbin/iptables-${variant}`,
      ],
      ...unseen.map((hidden): Doubt => [
        `this user may not list the rules of the ${hidden} variant: if there are some, of kubelet, of another proxy or of a firewall, ` +
        "nothing here tells of them",
        "run kproxy doctor as root",
      ]),
      otherHolds.length > 0 && [
        `a service proxy left rules in the ${other} variant (${
          otherHolds.join(", ")
        }): packets walk through both`,
        "end the other proxy, then: kproxy cleanup --only=iptables --only=ipvs && kproxy run",
      ],
    ]),
  ];
}

/**
 * Checks whether all programs of the node share the xtables lock, and whether another one holds it.
 *
 * @param isUsed false where the variant in use takes no lock
 */
export function checkLock(
  { path, exists, isMounted, isHeld }: XtablesLock,
  { inContainer, isUsed }: { readonly inContainer: boolean; readonly isUsed: boolean },
): readonly Finding[] {
  const check = "xtables lock";
  if (!isUsed) return [ok(check, "not used: the nft variant of iptables, and nft, need none")];
  return warnings(
    check,
    exists ? `${path} is free` : `${path} is not there yet; the first iptables makes it`,
    [
      inContainer && !isMounted && [
        `${path} looks like this container's own: kubelet and others on the node do not see who holds it`,
        `mount the host's ${path} into the container (hostPath, type FileOrCreate)`,
      ],
      isHeld === true && [
        `another program has held ${path} all the time it was looked at: rules cannot be written meanwhile`,
        `find it with: fuser -v ${path}`,
      ],
      isHeld === null && [
        `this user may not open ${path}: legacy iptables cannot write rules`,
        `run as root, or give this user write access to ${path}`,
      ],
    ],
  );
}
