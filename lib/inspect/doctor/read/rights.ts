/**
 * Reads what this process may do.
 *
 * @module
 */
import type { RightsFact, RuntimePermission } from "../judge/rights.ts";

interface WantedPermission {
  readonly flag: string;
  readonly descriptor: Deno.PermissionDescriptor;
  readonly otherwise: string;
}

const WANTED: readonly WantedPermission[] = [
  {
    flag: "--allow-sys=hostname",
    descriptor: { name: "sys", kind: "hostname" },
    otherwise: "only --hostname-override names the node",
  },
  {
    flag: "--allow-sys=cpus",
    descriptor: { name: "sys", kind: "cpus" },
    otherwise: "the connection tracking table is sized by the CPUs of this process",
  },
  {
    flag: "--allow-sys=networkInterfaces",
    descriptor: { name: "sys", kind: "networkInterfaces" },
    otherwise: "nobody knows the node's addresses, and node ports do not follow them",
  },
  {
    flag: "--allow-sys=osRelease",
    descriptor: { name: "sys", kind: "osRelease" },
    otherwise: "nobody knows what this kernel needs of net.ipv4.vs.conn_reuse_mode",
  },
  {
    flag: "--allow-sys=uid",
    descriptor: { name: "sys", kind: "uid" },
    otherwise: "missing rights show late",
  },
  {
    flag: "--allow-net",
    descriptor: { name: "net" },
    otherwise: "API server, health checks and metrics may be out of reach",
  },
  {
    flag: "--allow-read",
    descriptor: { name: "read" },
    otherwise: "configuration, kubeconfig, certificates and manifests may not be readable",
  },
];

/** Nothing is asked of a user, and nothing is used. */
export function readRights(): Promise<RightsFact> {
  const permissions = WANTED.map(({ flag, descriptor, otherwise }): RuntimePermission => {
    const { state, partial } = Deno.permissions.querySync(descriptor);
    return { flag, otherwise, isGranted: state === "granted" || partial };
  });
  const maySayUid = Deno.permissions.querySync({ name: "sys", kind: "uid" }).state === "granted";
  return Promise.resolve({ uid: maySayUid ? Deno.uid() : null, permissions });
}
