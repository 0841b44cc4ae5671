/**
 * The demo's network: a client and four backends, each joined to the node by a link of its own, and routed through it.
 *
 * @module
 */
import { DemoError, runProgram, type World } from "./world.ts";

/** One web server. */
export interface Backend {
  readonly name: string;
  readonly ip: string;
}

/** What answers behind the Service; the fourth comes in while traffic flows. Addresses as in examples/demo. */
export const BACKENDS: readonly Backend[] = [11, 12, 13, 14].map((last, i) => ({
  name: `web-${i + 1}`,
  ip: `10.244.0.${last}`,
}));
export const BACKEND_PORT = 8080;
/** From the ranges kept for documentation, so that they are nobody's. */
export const NODE_IP = "198.51.100.10";
export const CLIENT_IP = "198.51.100.20";
/** The node's address on the links to the backends. */
const POD_GATEWAY = "10.244.0.1";

/** Makes the namespaces and the links between them. */
export async function buildNetwork(world: World): Promise<void> {
  const names = ["node", "client", ...BACKENDS.map(({ name }) => name)];
  try {
    await ipBatch([], names.map((name) => `netns add ${world.netns(name)}`));
  } catch (error) {
    if (!(error instanceof DemoError)) throw error;
    const hint = "No network namespaces can be made here; a container must be run with --privileged";
    throw new DemoError(`${hint}\n${error.message}`, { cause: error });
  }
  await ipBatch(["-n", world.netns("node")], [
    "link set lo up",
    `link add client type veth peer name eth0 netns ${world.netns("client")}`,
    `addr add ${NODE_IP}/24 dev client`,
    "link set client up",
    ...BACKENDS.flatMap(({ name, ip }) => [
      `link add ${name} type veth peer name eth0 netns ${world.netns(name)}`,
      `addr add ${POD_GATEWAY}/32 dev ${name}`,
      `link set ${name} up`,
      `route add ${ip}/32 dev ${name}`,
    ]),
  ]);
  await ipBatch(["-n", world.netns("client")], [
    "link set lo up",
    `addr add ${CLIENT_IP}/24 dev eth0`,
    "link set eth0 up",
    `route add default via ${NODE_IP}`,
  ]);
  for (const { name, ip } of BACKENDS) {
    await ipBatch(["-n", world.netns(name)], [
      "link set lo up",
      `addr add ${ip}/32 dev eth0`,
      "link set eth0 up",
      `route add ${POD_GATEWAY} dev eth0`,
      `route add default via ${POD_GATEWAY}`,
    ]);
  }
  await world.run("node", ["sysctl", "-q", "-w", "net.ipv4.ip_forward=1"]);
}

async function ipBatch(options: readonly string[], lines: readonly string[]): Promise<void> {
  await runProgram(["ip", ...options, "-batch", "-"], { stdin: `${lines.join("\n")}\n` });
}
