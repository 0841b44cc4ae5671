/**
 * List of kproxy's permissions. The task `kproxy`, the compiled program and `docs/permissions.md` are made from it, and a
 * test compares them.
 *
 * @module
 */
import { markdownTable } from "./markdown_table.ts";

/** A value of a permission flag, and why it is needed. */
export interface Grant {
  /** Program, variable or system fact; empty for a flag without values. */
  readonly value: string;
  readonly reason: string;
}

/** A permission flag of the runtime, with its values. */
export interface Permission {
  readonly flag: `--${string}`;
  readonly grants: readonly Grant[];
}

const VARIANTS = [
  { infix: "", where: "in the system's default variant" },
  { infix: "-nft", where: "in the variant nft, if the node already uses it" },
  { infix: "-legacy", where: "in the variant legacy, if the node already uses it" },
] as const;
const ACTIONS = [
  { suffix: "", what: "Make and probe single chains and jumps" },
  { suffix: "-save", what: "Read the rules that are there" },
  { suffix: "-restore", what: "Write many rules in one transaction" },
] as const;

/** Programs of iptables: `iptables`, `iptables-save`, …, `ip6tables-legacy-restore`. */
function iptablesPrograms(): Grant[] {
  return VARIANTS.flatMap(({ infix, where }) =>
    [["iptables", "IPv4"], ["ip6tables", "IPv6"]].flatMap(([tool, family]) =>
      ACTIONS.map(({ suffix, what }) => ({
        value: `${tool}${infix}${suffix}`,
        reason: `${what}, ${family}, ${where}`,
      }))
    )
  );
}

/** All permissions, in the order of the command line. */
export const PERMISSIONS: readonly Permission[] = [
  {
    flag: "--allow-run",
    grants: [
      ...iptablesPrograms(),
      { value: "nft", reason: "nftables mode, and cleanup of its table" },
      { value: "ipvsadm", reason: "IPVS mode: virtual and real servers, and their cleanup" },
      { value: "ipset", reason: "IPVS mode: address sets, and their cleanup" },
      { value: "ip", reason: "Addresses and interfaces of the node; IPVS mode: its dummy interface" },
      { value: "conntrack", reason: "Delete flows that point at endpoints which are gone" },
      { value: "sysctl", reason: "Read and set kernel settings; /proc/sys itself is closed to the program" },
      {
        value: "nfacct",
        reason: "iptables mode: counters of dropped packets and of node ports on 127.0.0.1",
      },
      { value: "choom", reason: "oomScoreAdj: keep the kernel from ending kproxy first" },
    ],
  },
  {
    flag: "--allow-sys",
    grants: [
      { value: "hostname", reason: "Name of the node, without --hostname-override" },
      { value: "cpus", reason: "Number of CPUs, which the size of the connection tracking table follows" },
      { value: "networkInterfaces", reason: "Addresses of the node, for node ports and local traffic" },
      { value: "osRelease", reason: "Kernel version, for features that need one" },
      { value: "uid", reason: "Say at once that root is needed" },
    ],
  },
  {
    flag: "--allow-net",
    grants: [{
      value: "",
      reason: "API server, and the addresses of the health and metrics servers: both are configured",
    }],
  },
  {
    flag: "--allow-read",
    grants: [{
      value: "",
      reason: "Configuration, kubeconfig, certificates, tokens, manifests: their paths are configured",
    }],
  },
  {
    flag: "--allow-write",
    grants: [{
      value: "",
      reason: "--write-config-to, the snapshot and log files: their paths are configured",
    }],
  },
  {
    flag: "--allow-env",
    grants: [
      { value: "KUBERNETES_SERVICE_HOST", reason: "API server, inside a cluster" },
      { value: "KUBERNETES_SERVICE_PORT", reason: "API server, inside a cluster" },
      ...["HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"].map((value) => ({
        value,
        reason: "Proxy on the way to the API server",
      })),
    ],
  },
];

/** Flags that revoke rights instead of granting them. */
const RESTRICTIONS: readonly Grant[] = [
  {
    value: "--ignore-env",
    reason: "Every other variable reads as unset, so that libraries that look around learn nothing",
  },
  { value: "--no-prompt", reason: "What is not granted is refused; there is no prompt" },
];

/** Flags for the JavaScript engine, for every way to start kproxy. */
const ENGINE: readonly Grant[] = [
  {
    value: "--max-semi-space-size=1",
    reason:
      "Collect short-lived objects, of which a start makes many, after 1 MB instead of 16: with 2 MB already a fifth less memory " +
      "after the first sync and a quarter less at the peak, with 1 MB some 2 MB less again, for 3 to 7 % more processor time where 5,000 Services come at once",
  },
  {
    value: "--expose-gc",
    reason:
      "Let kproxy collect all garbage a second after the first syncs, and after changes once none has come for three seconds, for at most a thousandth of the time, instead of in the middle of a change",
  },
];

/** Settings of the C library's allocator, if kproxy is started by a file of this project. */
const ALLOCATOR: readonly Grant[] = [
  {
    value: "MALLOC_MMAP_THRESHOLD_=131072",
    reason:
      "Give buffers of more than 128 KiB back to the kernel when they are freed. Without it glibc's allocator takes the first " +
      "ones that are freed as a sign to keep all of up to that size, which the lists of a large cluster leave behind",
  },
  {
    value: "MALLOC_ARENA_MAX=1",
    reason:
      "One pool of buffers for all threads of the runtime. Without it glibc's allocator gives nearly every thread one of its own, and " +
      "what one thread has freed no other takes: 2 MB at 1,000 Services, more in some starts",
  },
];

/** Environment variables, `NAME=value`. */
export function runtimeVariables(): string[] {
  return ALLOCATOR.map(({ value }) => value);
}

/** All flags of `deno run` and `deno compile` that kproxy is started or built with, in order. */
export function runtimeFlags(): string[] {
  return [`--v8-flags=${ENGINE.map(({ value }) => value).join(",")}`, ...permissionFlags()];
}

/** The permissions among {@linkcode runtimeFlags}. */
export function permissionFlags(): string[] {
  const grants = PERMISSIONS.map(({ flag, grants }) => {
    const values = grants.map(({ value }) => value).filter((value) => value !== "");
    return values.length === 0 ? flag : `${flag}=${values.join(",")}`;
  });
  return [...grants, ...RESTRICTIONS.map(({ value }) => value)];
}

/** Table of `docs/permissions.md`: one row per permission, with its reason. */
export function permissionTable(): string {
  const grants = PERMISSIONS.flatMap(({ flag, grants }) =>
    grants.map(({ value, reason }) => ({ value: value === "" ? flag : `${flag}=${value}`, reason }))
  );
  return grantTable("permission", [...grants, ...RESTRICTIONS]);
}

/** Table of memory settings on that page: flags that grant nothing, and how much memory they save. */
export function memoryTable(): string {
  return grantTable("setting", [...ENGINE, ...ALLOCATOR]);
}

function grantTable(what: string, grants: readonly Grant[]): string {
  return markdownTable([what, "why"], grants.map(({ value, reason }) => [`\`${value}\``, reason]));
}
