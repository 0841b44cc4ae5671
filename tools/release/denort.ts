/**
 * The runtime that programs stand on (`denort`): Deno's archives of it, each known by its checksum. What a program runs on every node as
 * root is none that a server, a proxy or a cache of the machine that builds it could have put in its place.
 *
 * @module
 */
import { createHash } from "node:crypto";

const DOWNLOAD_TIMEOUT_MS = 120_000;

/** Which archives are taken. */
export interface DenortPins {
  /** The release of Deno; programs are built with this one only. */
  readonly version: string;
  /** By target, in hexadecimal digits; empty where it is not known: then no program is built for it. */
  readonly sha256: Readonly<Record<string, string>>;
}

/** To be renewed with each release of Deno, as docs/deploy.md tells. */
export const DENORT_PINS: DenortPins = {
  version: "2.9.6",
  sha256: {
    "x86_64-unknown-linux-gnu": "",
    "aarch64-unknown-linux-gnu": "",
    "x86_64-apple-darwin": "",
    "aarch64-apple-darwin": "",
    "x86_64-pc-windows-msvc": "",
    "aarch64-pc-windows-msvc": "",
  },
};

/** Where the archive comes from, and which one it must be. */
export interface DenortSource {
  readonly triple: string;
  /** A folder with archives that were downloaded elsewhere. @default {dl.deno.land} */
  readonly archives?: string;
  readonly pins?: DenortPins;
}

/**
 * Puts the archive where `deno compile` looks before it downloads, below its `DENO_DIR`.
 *
 * @returns false if there is no way to the server
 * @throws {Error} for another archive than the one that is pinned, and where none is
 */
export async function placeDenort(
  denoDir: string,
  { triple, archives, pins = DENORT_PINS }: DenortSource,
): Promise<boolean> {
  const name = `denort-${triple}.zip`;
  const url = `https://dl.deno.land/release/v${pins.version}/${name}`;
  const archive = archives === undefined ? await download(url) : await Deno.readFile(`${archives}/${name}`);
  if (archive === undefined) return false;
  if (Deno.version.deno !== pins.version) {
    throw new Error(`Programs are built with Deno ${pins.version}, not ${Deno.version.deno}`);
  }
  const found = createHash("sha256").update(archive).digest("hex");
  const wanted = pins.sha256[triple] ?? "";
  if (wanted === "") {
    throw new Error(
      `No checksum of ${name} is pinned, so no program is built on it. This one has ${found}: write that into tools/release/denort.ts if ` +
        `${url}.sha256sum, read by another way than this one, says the same`,
    );
  }
  if (found !== wanted) {
    throw new Error(
      `${name} of ${archives ?? url} is not the one that is pinned: ${found}, wanted ${wanted}`,
    );
  }
  const folder = `${denoDir}/dl/release/v${pins.version}`;
  await Deno.mkdir(folder, { recursive: true });
  await Deno.writeFile(`${folder}/${name}`, archive);
  return true;
}

/** Undefined if the server cannot be reached. @throws {Error} for an answer that is no archive */
async function download(url: string): Promise<Uint8Array | undefined> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(DOWNLOAD_TIMEOUT_MS) });
    if (response.ok) return await response.bytes();
    await response.body?.cancel();
    throw new Error(`${url}: status ${response.status}`);
  } catch (error) {
    // What fetch throws where there is no network, and what ends it after its time.
    if (error instanceof TypeError || (error instanceof DOMException && error.name === "TimeoutError")) {
      return undefined;
    }
    throw error;
  }
}
