/**
 * The toy's words, plan, difference and text: pure.
 *
 * @module
 */
import { atOnce, planServicesInSteps } from "../../lib/backend/planning.ts";
import { categorizeEndpoints } from "../../lib/model/endpoint.ts";
import { joinHostPort } from "../../lib/model/ip.ts";
import type { NamespacedName } from "../../lib/model/objects.ts";
import type { Changed, ProxyState, ServicePort } from "../../lib/model/state.ts";

/** `tcp/10.96.0.1:80` → `10.244.0.11:8080,10.244.0.12:8080`; `""`: no answer. */
export type ToyRules = ReadonlyMap<string, string>;

/** What the changed Services (or all) want; null: the Service is gone. */
export interface ToyPlan {
  readonly all: boolean;
  readonly services: ReadonlyMap<NamespacedName, ToyRules | null>;
}

/** What the kernel is known to hold, by Service. */
export type ToyCommitted = ReadonlyMap<NamespacedName, ToyRules>;

/** Lines of `toyctl load`, deletions first. */
export type ToyOperations = readonly string[];

/** What these Services want. */
export function planToy(state: ProxyState, changed: Changed): ToyPlan {
  const services = atOnce(planServicesInSteps(
    state,
    changed,
    state.family,
    (ports, endpoints): ToyRules =>
      new Map(ports.map((port) => {
        const { cluster } = categorizeEndpoints(endpoints?.get(port.key) ?? [], port, state.node);
        return [destinationOf(port), cluster.map(({ key }) => key).join(",")];
      })),
  ));
  return { all: changed === "all", services };
}

function destinationOf({ protocol, clusterIP, port }: ServicePort): string {
  return `${protocol.toLowerCase()}/${joinHostPort(clusterIP, port)}`;
}

/** What is committed once a plan is in force. */
export function committedAfter({ all, services }: ToyPlan, before: ToyCommitted): ToyCommitted {
  const after = new Map(all ? [] : before);
  for (const [name, rules] of services) {
    if (rules === null) after.delete(name);
    else after.set(name, rules);
  }
  return after;
}

/** All rules of these Services. No two want the same destination: the state sees to that. */
export function rulesOf(committed: ToyCommitted): ToyRules {
  return new Map([...committed.values()].flatMap((rules) => [...rules]));
}

/** From the rules that are there to those that are wanted. */
export function diffToy(wanted: ToyRules, there: ToyRules): ToyOperations {
  const gone = [...there.keys()].filter((destination) => !wanted.has(destination));
  const set = [...wanted].filter(([destination, endpoints]) => there.get(destination) !== endpoints);
  return [
    ...gone.sort().map((destination) => `delete ${destination}`),
    ...set.map((rule) => `set ${ruleText(rule)}`).sort(),
  ];
}

/** The text of rules, in a stable order. */
export function renderToy(rules: ToyRules): string {
  return [...rules].map((rule) => `${ruleText(rule)}\n`).sort().join("");
}

function ruleText([destination, endpoints]: readonly [string, string]): string {
  return `${destination} ${endpoints === "" ? "refuse" : endpoints}`;
}

/**
 * Reads what {@linkcode renderToy} writes and `toyctl show` prints.
 *
 * @throws {SyntaxError} if a line is no rule
 */
export function parseToy(text: string): ToyRules {
  return new Map(
    text.split("\n").filter((line) => line !== "").map((line) => {
      const [destination = "", endpoints, ...rest] = line.split(" ");
      if (endpoints === undefined || rest.length > 0) throw new SyntaxError(`"${line}" is no rule`);
      return [destination, endpoints === "refuse" ? "" : endpoints];
    }),
  );
}
