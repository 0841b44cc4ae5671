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

function sys(kind: Deno.SysPermissionDescriptor["kind"] & string, otherwise: string): WantedPermission {
  return { flag: `--allow-sys=${kind}`, descriptor: { name: "sys", kind }, otherwise };
}

function all(name: "net" | "read", otherwise: string): WantedPermission {
  return { flag: `--allow-${name}`, descriptor: { name }, otherwise };
}

const WANTED: readonly WantedPermission[] = [
  sys("hostname", "only --hostname-override names the node"),
  sys("cpus", "the connection tracking table is sized by the CPUs of this process"),
  sys("networkInterfaces", "nobody knows the node's addresses, and node ports do not follow them"),
  sys("osRelease", "nobody knows what this kernel needs of net.ipv4.vs.conn_reuse_mode"),
  sys("uid", "missing rights show late"),
  all("net", "API server, health checks and metrics may be out of reach"),
  all("read", "configuration, kubeconfig, certificates and manifests may not be readable"),
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
