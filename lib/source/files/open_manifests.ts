/**
 * Manifest files as a source for programs that use kproxy as a library.
 *
 * @module
 */
import { type Logger, silentLogger } from "../../observe/log.ts";
import type { Source } from "../source.ts";
import { classifyPaths } from "./files_scan.ts";

/** How {@linkcode openManifests} reads. */
export interface ManifestsOptions {
  /** How many milliseconds files must be quiet before they are read. @default {30} */
  readonly debounceMs?: number;
  /** Hears of what cannot be watched or read. @default {not reported} */
  readonly log?: Logger;
}

/**
 * The objects in files and folders (their `*.yaml`, `*.yml`, `*.json`, not deeper), watched: edits, renames into place, deletions.
 * Of two objects of the same name that of the earlier path counts.
 *
 * @throws {Deno.errors.NotFound} if a path does not exist
 */
export async function openManifests(
  paths: readonly string[],
  options: ManifestsOptions = {},
): Promise<Source> {
  await classifyPaths(paths);
  const { FileSource } = await import("./files.ts");
  return new FileSource({ paths, log: silentLogger, ...options });
}
