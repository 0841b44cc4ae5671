/**
 * States and settings for tests of iptables mode, in short form.
 *
 * @module
 */
import type { IptablesSettings } from "../../lib/backend/iptables/apply/proxier.ts";
import { nodePortAddresses } from "../../lib/model/node.ts";
import type { IpFamily, NamespacedName } from "../../lib/model/objects.ts";
import type { Endpoint, ProxyState, ServicePort, ServicePortKey } from "../../lib/model/state.ts";
import { testServicePort } from "./model_objects.ts";

/** Service name → number of its endpoints. */
export type ServiceSizes = Readonly<Record<string, number>>;

/** Default settings for node 192.0.2.10 or fd00:192::10. */
export function defaultSettings(family: IpFamily): IptablesSettings {
  return {
    masqueradeMark: 0x4000,
    masqueradeAll: false,
    detector: { kind: "cidr", cidr: family === "IPv4" ? "10.244.0.0/16" : "fd00:10:244::/56" },
    localhostNodePorts: true,
    nodePortAddresses: nodePortAddresses(family, null),
    nodeIp: family === "IPv4" ? "192.0.2.10" : "fd00:192::10",
    dropInvalid: true,
  };
}

/**
 * State of Services `shop/<name>` with one TCP port 80 and, for names that end in "-np", a node port. The number in a
 * name (`s12`) gives the Service's address in the service network.
 */
export function stateOf(family: IpFamily, sizes: ServiceSizes): ProxyState {
  const services = new Map<NamespacedName, readonly ServicePort[]>();
  const endpoints = new Map<NamespacedName, ReadonlyMap<ServicePortKey, readonly Endpoint[]>>();
  let endpointCount = 0;
  for (const [name, size] of Object.entries(sizes)) {
    const number = Number(/\d+/.exec(name)?.[0] ?? 0);
    const servicePort = servicePortOf(family, name, number);
    services.set(servicePort.namespacedName, [servicePort]);
    if (size === 0) continue;
    const list = Array.from({ length: size }, (_, i) => endpointOf(family, number, i));
    list.sort((a, b) => a.key < b.key ? -1 : 1);
    endpoints.set(servicePort.namespacedName, new Map([[servicePort.key, list]]));
    endpointCount += size;
  }
  return {
    family,
    node: { name: "node-a", zone: "" },
    services,
    endpoints,
    endpointCount,
    tooLarge: new Map(),
  };
}

function servicePortOf(family: IpFamily, name: string, number: number): ServicePort {
  const high = number >> 8, low = number & 255;
  return testServicePort({
    key: `shop/${name}:http/TCP`,
    namespacedName: `shop/${name}`,
    text: `shop/${name}:http`,
    portName: "http",
    clusterIP: family === "IPv4" ? `10.96.${high}.${low}` : `fd00:10:96::${(number + 1).toString(16)}`,
    nodePort: name.endsWith("-np") ? 30000 + number : 0,
  });
}

function endpointOf(family: IpFamily, service: number, index: number): Endpoint {
  const place = service * 16 + index + 1;
  const ip = family === "IPv4"
    ? `10.${128 + (place >> 16)}.${(place >> 8) & 255}.${place & 255}`
    : `fd00:10:244::${(place >> 16).toString(16)}:${(place & 0xffff).toString(16)}`;
  return {
    key: family === "IPv4" ? `${ip}:8080` : `[${ip}]:8080`,
    ip,
    port: 8080,
    isLocal: index === 0,
    ready: true,
    serving: true,
    terminating: false,
    zoneHints: [],
    nodeHints: [],
  };
}
