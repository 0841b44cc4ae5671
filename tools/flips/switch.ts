/**
 * What text with flips in it calls, and the switch that turns one flip on.
 *
 * @module
 */

type Values = readonly [left: never, right: never];
const OPERATORS: Readonly<Record<string, (...values: Values) => unknown>> = {
  "===": (a, b) => a === b,
  "!==": (a, b) => a !== b,
  "<": (a, b) => a < b,
  "<=": (a, b) => a <= b,
  ">": (a, b) => a > b,
  ">=": (a, b) => a >= b,
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "/": (a, b) => a / b,
  "%": (a, b) => a % b,
  "&": (a, b) => a & b,
  "|": (a, b) => a | b,
  "<<": (a, b) => a << b,
  ">>": (a, b) => a >> b,
};

/** At most one flip is on; those that the program came by are kept. */
export class FlipSwitch {
  /** The flip that is on; 0 for none. */
  on = 0;
  reached: Set<number> = new Set();

  /** True if this flip is on. */
  #is(id: number): boolean {
    this.reached.add(id);
    return this.on === id;
  }

  /** Puts the four names that flipped text uses on the global object. */
  install(target: Record<string, unknown>): void {
    target["$t"] = undefined;
    target["$m"] = (id: number): boolean => this.#is(id);
    target["$n"] = (id: number, value: unknown): unknown => this.#is(id) ? !value : value;
    // Cases: a flip's number and its operator, by turns.
    target["$b"] = (operator: string, cases: readonly (number | string)[], ...values: Values): unknown => {
      let chosen = operator;
      for (let at = 0; at < cases.length; at += 2) {
        if (this.#is(cases[at] as number)) chosen = cases[at + 1] as string;
      }
      return OPERATORS[chosen]?.(...values);
    };
  }
}
