/**
 * Plans and operations as text for `nft -f -`.
 *
 * @module
 */
import type { IpFamily } from "../../model/objects.ts";
import { FAMILY_WORDS, TABLE_NAME } from "./chains.ts";
import { diffObserved, NO_TABLE } from "./diff_observed.ts";
import type { AffinitySet, Chain, Container, Element, NftablesPlan, Operations } from "./ruleset.ts";

/** The table that a text is about. */
export interface TableTarget {
  readonly family: IpFamily;
  /** `kproxy`, unless it is built beside one of another layout. */
  readonly name?: string;
  /** Given to the table if the text makes it; `""`: none. */
  readonly comment?: string;
}

/** The commands of one transaction. */
class TransactionText {
  readonly #table: string;
  readonly #addressType: string;
  readonly #lines: string[] = [];

  constructor({ family, name = TABLE_NAME }: TableTarget) {
    const { ip, addressType } = FAMILY_WORDS[family];
    this.#table = `${ip} ${name}`;
    this.#addressType = addressType;
  }

  addTable(comment: string): void {
    this.#lines.push(`add table ${this.#table}${comment === "" ? "" : ` { comment "${comment}" ; }`}`);
  }

  addContainer({ name, kind, spec, comment }: Container): void {
    const suffix = comment === "" ? "" : ` comment "${comment}" ;`;
    this.#lines.push(`add ${kind} ${this.#table} ${name} { ${spec}${suffix} }`);
  }

  addSet({ name, timeoutSeconds }: AffinitySet): void {
    this.#lines.push(
      `add set ${this.#table} ${name} { type ${this.#addressType} ; flags dynamic,timeout ;` +
        ` timeout ${timeoutSeconds}s ; }`,
    );
  }

  /** A chain that is there already is emptied first. */
  addChain({ name, rules }: Chain, hook?: string): void {
    this.#lines.push(`add chain ${this.#table} ${name}`);
    if (hook === undefined) {
      this.#lines.push(`flush chain ${this.#table} ${name}`);
    } else {
      // The hook of a chain cannot be changed.
      this.#lines.push(`delete chain ${this.#table} ${name}`);
      this.#lines.push(`add chain ${this.#table} ${name} { ${hook} }`);
    }
    for (const rule of rules) this.#lines.push(`add rule ${this.#table} ${name} ${rule}`);
  }

  flushChain(name: string): void {
    this.#lines.push(`flush chain ${this.#table} ${name}`);
  }

  deleteSet(name: string): void {
    this.#lines.push(`delete set ${this.#table} ${name}`);
  }

  /** One command for each set and map, one line for each element: what nft complains about it quotes. */
  elements(command: "add" | "delete", elements: Iterable<Element>): void {
    const byContainer = new Map<string, Set<string>>();
    for (const element of elements) {
      let lines = byContainer.get(element.container);
      if (lines === undefined) byContainer.set(element.container, lines = new Set());
      lines.add(command === "add" ? addedElement(element) : element.key);
    }
    for (const [container, lines] of byContainer) {
      this.#lines.push(`${command} element ${this.#table} ${container} {`, [...lines].join(",\n"), "}");
    }
  }

  toString(): string {
    return this.#lines.length === 0 ? "" : this.#lines.join("\n") + "\n";
  }
}

function addedElement({ key, value, comment }: Element): string {
  const commented = comment === undefined || comment === "" ? key : `${key} comment "${comment}"`;
  return value === "" ? commented : `${commented} : ${value}`;
}

function* flat<T>(lists: Iterable<readonly T[]>): Generator<T> {
  for (const list of lists) yield* list;
}

/** The operations as one transaction; empty if nothing needs to be done. */
export function renderOperations(operations: Operations, target: TableTarget): string {
  const { base, services, leftover } = operations;
  const text = new TransactionText(target);
  // All of them are there from the first transaction on, so that then there is no table yet, or it is no loss to say it.
  if (base.containers.length > 0) text.addTable(target.comment ?? "");
  for (const container of base.containers) text.addContainer(container);
  text.elements(
    "delete",
    flat([base.deletedElements, ...services.map((service) => service.deletedElements)]),
  );
  for (const service of services) for (const set of service.writtenSets) text.addSet(set);
  for (const chain of base.chains) text.addChain(chain);
  for (const chain of base.sharedChains) text.addChain(chain);
  for (const chain of base.hookedChains) text.addChain(chain, chain.hook);
  for (const service of services) for (const chain of service.writtenChains) text.addChain(chain);
  text.elements("add", flat([base.addedElements, ...services.map((service) => service.addedElements)]));
  text.elements("delete", leftover.deletedElements);
  for (const name of [...services.flatMap((service) => service.staleChains), ...leftover.staleChains]) {
    text.flushChain(name);
  }
  for (const name of [...services.flatMap((service) => service.staleSets), ...leftover.staleSets]) {
    text.deleteSet(name);
  }
  return text.toString();
}

/** The whole plan as text, for a table that is not there yet. */
export function renderPlan(plan: NftablesPlan): string {
  const { operations } = diffObserved(plan, NO_TABLE);
  return renderOperations(operations, { family: plan.family, comment: plan.base.comment });
}
