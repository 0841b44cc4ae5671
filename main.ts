/**
 * kproxy's entry point.
 *
 * @module
 */
import { runCli } from "./lib/cli/cli.ts";
import { systemIo } from "./lib/cli/io.ts";
import { guardStackTraces } from "./lib/kernel/stack_traces.ts";

guardStackTraces();
Deno.exit(await runCli(Deno.args, systemIo));
