/**
 * Stack traces that cost no process its life.
 *
 * @module
 */
import { countSpareDescriptors } from "./descriptors.ts";

/**
 * From now on a stack is the error's message alone while no file can be opened, whoever asks for it: the logger, which finds its caller
 * there, or the errors of `node:` modules. From source, the runtime reads a file to tell the place of a frame, and panics where it cannot
 * (Deno 2.9.6, when a first frame of that file is asked for).
 */
export function guardStackTraces(canOpenFiles: () => boolean = () => countSpareDescriptors(1) > 0): void {
  const prepareStackTrace = (error: unknown, frames: readonly unknown[]): string =>
    canOpenFiles() ? [error, ...frames.map((frame) => `    at ${frame}`)].join("\n") : String(error);
  Object.assign(Error, { prepareStackTrace });
}
