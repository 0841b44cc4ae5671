/**
 * Tables that iptables cannot read, because nft added rules to them: that is logged.
 *
 * @module
 */
import type { IpFamily } from "../model/objects.ts";
import type { Logger } from "../observe/log.ts";

/** What an {@linkcode UnreadableTables} needs. */
export interface UnreadableTablesOptions {
  readonly family: IpFamily;
  readonly log: Logger;
  /** What else follows from it, after "Our rules there are looked for by name". @default {""} */
  readonly consequence?: string;
}

/** Warns of them whenever they are other ones than before. */
export class UnreadableTables {
  readonly #options: UnreadableTablesOptions;
  #told = "";

  constructor(options: UnreadableTablesOptions) {
    this.#options = options;
  }

  /** @param unreadable those that there are now */
  tell(unreadable: Iterable<string>): void {
    const { family, log, consequence = "" } = this.#options;
    const tables = [...unreadable].join(" ");
    if (tables === this.#told) return;
    this.#told = tables;
    if (tables === "") return;
    log.warn(
      "iptables cannot read a table: nft added rules to it that iptables has no words for. Our rules there are " +
        `looked for by name${consequence}. Put the other rules into a table of their own`,
      { family, tables },
    );
  }
}
