/**
 * Starts kproxy from source: loads `main.ts`, or says in one line that its packages are missing, which Deno would say in many before
 * `main.ts` began.
 *
 * @module
 */
import { missingPackageText } from "./lib/cli/missing_packages.ts";

// A variable, not a literal: a literal import is loaded, with all packages, before this file runs.
const MAIN: string = new URL("./main.ts", import.meta.url).href;

try {
  await import(MAIN);
} catch (error) {
  const text = missingPackageText(
    error,
    decodeURIComponent(new URL(".", import.meta.url).pathname).replace(/\/$/, ""),
  );
  if (text === undefined) throw error;
  Deno.stderr.writeSync(new TextEncoder().encode(`Error: ${text}\n`));
  Deno.exitCode = 1;
}
