/**
 * kproxy's entry point.
 *
 * @module
 */
import { runCli } from "./lib/cli/cli.ts";
import { systemIo } from "./lib/cli/io.ts";

Deno.exit(await runCli(Deno.args, systemIo));
