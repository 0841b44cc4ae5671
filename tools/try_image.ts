/**
 * Builds the bundle and the image of `deploy/Dockerfile` with podman, and runs it as the Pods of `deploy/kubernetes`
 * (`tests/e2e/image_test.ts`).
 *
 * deno task try-image [--local-bases] [--record]
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { beginRecord, recordText } from "../tests/bench/record.ts";
import { IMAGE_FILE, type ImageRecord } from "./figures/records.ts";
import { writeErrorLine, writeLine } from "./output.ts";
import { ROOT } from "./project_files.ts";
import { findProgram } from "./setup.ts";

const IMAGE = "localhost/kproxy:try";
/** Base images built here instead of those that deploy/Dockerfile pins, which need a registry. */
const LOCAL_BASES = { DENO_BASE: "localhost/kproxy-deno:try", DEBIAN_BASE: "localhost/kproxy-debian:try" };

async function step(argv: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<void> {
  writeLine(`+ ${argv.join(" ")}`);
  const [program = "", ...args] = argv;
  const { code } = await new Deno.Command(program, { args, env, cwd: ROOT, stdin: "null" }).spawn().status;
  if (code !== 0) throw new Error(`${program} ended with ${code}`);
}

/** @param record whether to record success in `docs/records/image.json` */
async function tryImage(localBases: boolean, record: boolean): Promise<void> {
  for (const program of ["podman", ...localBases ? ["debootstrap", "tar"] : []]) {
    if (findProgram(program) === undefined) {
      throw new Error(`This needs ${program}: apt-get install ${program}`);
    }
  }
  const words = ["deno", "task", "try-image", ...localBases ? ["--local-bases"] : [], "--record"];
  const head = record ? await beginRecord({ words, rounds: 1, kubeProxy: null }) : null;
  if (localBases) {
    const { DENO_BASE, DEBIAN_BASE } = LOCAL_BASES;
    await step([`${ROOT}/tests/lab/base_images.sh`, Deno.execPath(), DENO_BASE, DEBIAN_BASE]);
  }
  await step([Deno.execPath(), "task", "-q", "bundle"]);
  // No bridge and no rules for the build: the machine's network stays unchanged.
  const alone = ["--isolation=chroot", "--network=host"];
  const pull = localBases ? "never" : "missing";
  await step([
    "podman",
    "build",
    ...alone,
    `--pull=${pull}`,
    ...localBases ? Object.entries(LOCAL_BASES).map(([name, image]) => `--build-arg=${name}=${image}`) : [],
    "--file=deploy/Dockerfile",
    `--tag=${IMAGE}`,
    ".",
  ]);
  await step(["podman", "image", "ls", IMAGE]);
  await step([Deno.execPath(), "test", "-A", "tests/e2e/image_test.ts"], { KPROXY_IMAGE: IMAGE, CI: "true" });
  if (head === null) return;
  const done: ImageRecord = {
    ...head(),
    bases: localBases ? "local stand-ins" : "those of deploy/Dockerfile",
  };
  await Deno.writeTextFile(`${ROOT}/${IMAGE_FILE}`, recordText(done));
}

if (import.meta.main) {
  try {
    const { "local-bases": localBases, record } = parseArgs(Deno.args, {
      boolean: ["local-bases", "record"],
    });
    await tryImage(localBases, record);
  } catch (error) {
    writeErrorLine(error instanceof Error ? error.message : String(error));
    Deno.exitCode = 1;
  }
}
