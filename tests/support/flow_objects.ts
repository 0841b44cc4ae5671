/**
 * What is on a node of the flow cases with real packets beside the objects of a case.
 *
 * @module
 */
import { service } from "../flows/objects.ts";
import { NODE_OBJECT } from "./node_lab.ts";

/** The Node in a zone; `""`: in none. */
export function nodeInZone(zone: string): Record<string, unknown> {
  const labels = zone === "" ? {} : { "topology.kubernetes.io/zone": zone };
  return { ...NODE_OBJECT, metadata: { ...NODE_OBJECT.metadata, labels } };
}

/**
 * A Service whose sync shows that everything that was written with it is in force, in both families.
 *
 * @param index 0 to 255
 */
export function marker(index: number): Record<string, unknown> {
  return service(`kp/marker-${index}`, {
    clusterIP: `10.111.0.${index}`,
    clusterIPs: [`10.111.0.${index}`, `fd00:10:111::${index.toString(16)}`],
    ipFamilies: ["IPv4", "IPv6"],
    ports: [":1"],
  });
}
