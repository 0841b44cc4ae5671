/**
 * The programs that kproxy starts: what each is for, and how old it may be.
 *
 * @module
 */
import { MIN_NFT_VERSION } from "../../backend/nftables/node/preflight.ts";
import type { ProxyMode } from "../../config/types.ts";
import { OLDEST_MAJOR } from "../../kernel/ipset.ts";
import { MIN_IPTABLES_VERSION } from "../../kernel/iptables_version.ts";

/** One of the programs. */
export interface Program {
  readonly name: string;
  /** What makes it print its version. */
  readonly versionArgs: readonly string[];
  /** Of Debian; other systems have similar names. */
  readonly packageName: string;
  /** The modes that do not work without it. */
  readonly modes: readonly ProxyMode[];
  /** What else does not work without it; `""` for nothing. */
  readonly otherwise: string;
  /** Dotted; null where any will do. */
  readonly minVersion: string | null;
}

const IPTABLES = {
  versionArgs: ["--version"],
  packageName: "iptables",
  minVersion: MIN_IPTABLES_VERSION,
} as const;

/** In the order of the report. */
export const PROGRAMS: readonly Program[] = [
  { ...IPTABLES, name: "iptables", modes: ["iptables", "ipvs"], otherwise: "" },
  {
    ...IPTABLES,
    name: "ip6tables",
    modes: [],
    otherwise: "in modes iptables and ipvs Services do not answer on IPv6",
  },
  {
    name: "nft",
    versionArgs: ["--version"],
    packageName: "nftables",
    modes: ["nftables"],
    otherwise: "",
    minVersion: MIN_NFT_VERSION,
  },
  {
    name: "ipvsadm",
    versionArgs: ["--version"],
    packageName: "ipvsadm",
    modes: ["ipvs"],
    otherwise: "",
    minVersion: null,
  },
  {
    name: "ipset",
    versionArgs: ["--version"],
    packageName: "ipset",
    modes: ["ipvs"],
    otherwise: "",
    minVersion: `${OLDEST_MAJOR}.0`,
  },
  {
    name: "ip",
    versionArgs: ["-V"],
    packageName: "iproute2",
    modes: ["ipvs"],
    otherwise: "",
    minVersion: null,
  },
  {
    name: "conntrack",
    versionArgs: ["--version"],
    packageName: "conntrack",
    modes: [],
    otherwise: "UDP flows stay with endpoints that are gone",
    minVersion: null,
  },
  {
    name: "sysctl",
    versionArgs: ["--version"],
    packageName: "procps",
    modes: [],
    otherwise: "kernel settings are neither read nor set",
    minVersion: null,
  },
  {
    name: "nfacct",
    versionArgs: ["--version"],
    packageName: "nfacct",
    modes: [],
    otherwise: "mode iptables does not count node ports on 127.0.0.1",
    minVersion: null,
  },
  {
    name: "choom",
    versionArgs: ["--version"],
    packageName: "util-linux",
    modes: [],
    otherwise: "the kernel may end kproxy first when memory is short",
    minVersion: null,
  },
];

/** What became of asking a program for its version. */
export type ProgramFact =
  | { readonly kind: "found"; /** Null if it prints something else. */ readonly version: string | null }
  | { readonly kind: "missing" }
  /** The runtime does not let kproxy start it. */
  | { readonly kind: "forbidden" };
