/**
 * The addresses of the node that serve node ports of one family, which come and go while kproxy runs.
 *
 * @module
 */
import { matchingNodeIps, type NodePortAddresses } from "../../model/node.ts";
import { sameTexts } from "../../model/service_port.ts";

/** See the module. */
export class NodePortIps {
  readonly #interfaceIps: () => readonly string[];
  #addresses: NodePortAddresses | undefined;
  #planned: readonly string[] = [];

  /** @param interfaceIps addresses of all interfaces of the node, both families; asked unless every address serves node ports */
  constructor(interfaceIps: () => readonly string[]) {
    this.#interfaceIps = interfaceIps;
  }

  /** As the latest plan took them; empty before one, and where every address serves node ports. */
  get planned(): readonly string[] {
    return this.#planned;
  }

  /** Those of now, for a plan. */
  take(addresses: NodePortAddresses): readonly string[] {
    this.#addresses = addresses;
    return this.#planned = this.#read(addresses);
  }

  /** True if they are others than those of the latest plan. */
  get isOutdated(): boolean {
    return this.#addresses !== undefined && !sameTexts(this.#planned, this.#read(this.#addresses));
  }

  #read(addresses: NodePortAddresses): readonly string[] {
    return addresses.matchAll ? [] : matchingNodeIps(addresses, this.#interfaceIps());
  }
}
