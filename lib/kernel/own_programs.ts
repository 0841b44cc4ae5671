/**
 * The programs that kproxy starts for its work, by name. The list of its permissions is held equal to this one by a test.
 *
 * @module
 */

const IPTABLES = ["iptables", "ip6tables"].flatMap((tool) =>
  ["", "-nft", "-legacy"].flatMap((variant) =>
    ["", "-save", "-restore"].map((action) => `${tool}${variant}${action}`)
  )
);

/** Names of all programs that kproxy may start for its work, and so with its rights. */
export const OWN_PROGRAMS: readonly string[] = [
  ...IPTABLES,
  "nft",
  "ipvsadm",
  "ipset",
  "ip",
  "conntrack",
  "sysctl",
  "nfacct",
  "choom",
];
