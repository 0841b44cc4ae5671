/**
 * What the aliases of a YAML document stand for, found in one walk. The parser looks for each by itself, through all the others:
 * 9,000 of them, 70 kB of text, keep it for minutes.
 *
 * @module
 */
import { Alias, type Document, isAlias, isCollection, isPair, type Node, visit } from "yaml";

/** By alias, in the order of the text; undefined if it leads nowhere. */
export type AliasTargets = ReadonlyMap<Alias, Node | undefined>;

/** Finds the anchor of each alias: the last one of its name before it. */
export function aliasTargets(document: Document): AliasTargets {
  const targets = new Map<Alias, Node | undefined>();
  const anchors = new Map<string, Node>();
  visit(document, {
    Node: (_, node) => {
      if (isAlias(node)) targets.set(node, anchors.get(node.source));
      else if (node.anchor !== undefined) anchors.set(node.anchor, node);
    },
  });
  return targets;
}

/** An anchor may be used so often, as the parser has it: uses of an alias inside of it count for each of its own. */
const MOST_USES = 100;

/** What the parser would refuse, counted once for each anchor and not for each alias. */
export function areOverused(targets: AliasTargets): boolean {
  const uses = new Map<Node, number>();
  const weights = new Map<Node, number>();
  const weightOf = (node: unknown): number => {
    if (isPair(node)) return Math.max(weightOf(node.key), weightOf(node.value));
    if (isAlias(node)) {
      const target = targets.get(node);
      return target === undefined ? 0 : (uses.get(target) ?? 0) * (weights.get(target) ?? 0);
    }
    if (!isCollection(node)) return 1;
    const known = weights.get(node);
    if (known !== undefined) return known;
    let weight = 0;
    for (const item of node.items) weight = Math.max(weight, weightOf(item));
    if (node.anchor !== undefined) weights.set(node, weight);
    return weight;
  };
  for (const target of targets.values()) {
    // The parser reports this one.
    if (target === undefined) return false;
    const count = (uses.get(target) ?? 1) + 1;
    uses.set(target, count);
    const weight = weights.get(target) ?? weightOf(target);
    weights.set(target, weight);
    if (count * weight > MOST_USES) return true;
  }
  return false;
}

/** Lets the parser find what is known. Its cache holds all anchors and aliases, and it goes through them to the alias. */
export function resolveFrom(targets: AliasTargets): void {
  for (const [alias, target] of targets) {
    alias.resolve = (document, context) => {
      if (context === undefined) return target as ReturnType<Alias["resolve"]>;
      context.aliasResolveCache = target === undefined ? [] : [target];
      return Alias.prototype.resolve.call(alias, document, context);
    };
  }
}
