/**
 * Builds a release into `dist/`: a program for each target, the bundle for a stock Deno, the bill of materials, the
 * manual page, and the checksums of all of them. Without a runtime to build on, programs are left out, which is reported.
 *
 * `--target=TRIPLE` builds for that machine only, `--credential-plugin=PROGRAM` allows programs to start that one; both can be repeated.
 * `--denort=FOLDER` takes the runtime's archives from there, `--sign=KEY` signs the checksums with that minisign key. `--dry` tests the
 * build without a runtime.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { VERSION } from "../lib/node/version.ts";
import { buildBundle } from "./bundle.ts";
import { manPage } from "./man_page.ts";
import { writeErrorLine, writeLine } from "./output.ts";
import { ROOT } from "./project_files.ts";
import { checksums, sign } from "./release/checksums.ts";
import { buildCommit } from "./release/commit.ts";
import { compile, dryBuild } from "./release/program.ts";
import { billOfMaterials } from "./release/sbom.ts";
import { smokeProblems } from "./release/smoke.ts";
import { hostTarget, namedTargets, type Target, TARGETS } from "./release/targets.ts";

const DIST = `${ROOT}/dist`;
const BUNDLE = "kproxy-js";
const BILL = "kproxy.cdx.json";
const SUMS = "SHA256SUMS";
const SIGNATURE = `${SUMS}.minisig`;
const PAGE = "kproxy.8";

interface Wanted {
  readonly targets: readonly Target[];
  readonly credentialPlugins: readonly string[];
  /** Folder with the runtime's archives. */
  readonly archives: string | undefined;
  /** File of the minisign key. */
  readonly key: string | undefined;
  readonly isDry: boolean;
}

/** Reads the arguments. @throws {TypeError} for unknown ones */
export function wantedOf(args: readonly string[]): Wanted {
  const { target, "credential-plugin": credentialPlugins, denort, sign, dry } = parseArgs([...args], {
    string: ["target", "credential-plugin", "denort", "sign"],
    boolean: ["dry"],
    collect: ["target", "credential-plugin"],
    unknown: (arg) => {
      throw new TypeError(
        `Wanted --target=, --credential-plugin=, --denort=, --sign= or --dry, found ${arg}`,
      );
    },
  });
  if (denort === "" || sign === "") throw new TypeError("Wanted a value, found --denort= or --sign=");
  // Plugins go into a comma-separated list.
  const wrong = credentialPlugins.find((plugin) => plugin === "" || plugin.includes(","));
  if (wrong !== undefined) throw new TypeError(`Wanted a program, found --credential-plugin=${wrong}`);
  return { targets: namedTargets(target), credentialPlugins, archives: denort, key: sign, isDry: dry };
}

/** Removes files of an earlier build, which the checksums would not cover. */
async function removeOld(): Promise<void> {
  for (const name of [...TARGETS.map(({ file }) => file), BUNDLE, BILL, PAGE, SUMS, SIGNATURE]) {
    await Deno.remove(`${DIST}/${name}`, { recursive: true }).catch((error) => {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    });
  }
}

/** Builds the programs; resolves to their files. @throws {Error} if a built program fails its check */
async function buildPrograms(wanted: Wanted, commit: string): Promise<string[]> {
  const files: string[] = [];
  const { credentialPlugins, archives, isDry } = wanted;
  for (const target of wanted.targets) {
    const options = { bundle: `${DIST}/${BUNDLE}`, triple: target.triple, credentialPlugins };
    const path = `${DIST}/${target.file}`;
    if (isDry || !await compile(path, options, archives === undefined ? {} : { archives })) {
      await dryBuild(options);
      const reason = isDry ? "--dry asks for none" : "denort cannot be downloaded here";
      writeLine(`No program was built: ${reason}.`);
      writeLine(
        "A dry build for this machine went well: it carries the bundle and the permissions; it was deleted.",
      );
      return files;
    }
    files.push(target.file);
    writeLine(`Built ${path}: ${((await Deno.stat(path)).size / 1e6).toFixed(0)} MB`);
    if (target !== hostTarget()) continue;
    const problems = await smokeProblems([path], { version: VERSION, commit });
    if (problems.length > 0) throw new Error(`${target.file} does not work: ${problems.join("; ")}`);
    writeLine(`Ran ${target.file}: version, rules of all modes and help are right`);
  }
  return files;
}

async function build(wanted: Wanted): Promise<void> {
  const commit = await buildCommit();
  await removeOld();
  await Deno.mkdir(DIST, { recursive: true });
  writeLine(`kproxy ${VERSION}, commit ${commit}`);
  writeLine(await buildBundle(`${DIST}/${BUNDLE}`, commit));
  const files = [BILL, PAGE];
  for await (const { name } of Deno.readDir(`${DIST}/${BUNDLE}`)) files.push(`${BUNDLE}/${name}`);
  await Deno.writeTextFile(`${DIST}/${BILL}`, await billOfMaterials(commit));
  await Deno.writeTextFile(`${DIST}/${PAGE}`, manPage());
  files.push(...await buildPrograms(wanted, commit));
  await Deno.writeTextFile(`${DIST}/${SUMS}`, await checksums(DIST, files));
  writeLine(`Built ${DIST}/${BILL}, ${PAGE}, and ${SUMS} of ${files.length} files`);
  if (wanted.key === undefined) {
    writeLine(`${SUMS} is not signed: --sign=KEY signs it with minisign; docs/deploy.md has other ways`);
    return;
  }
  await sign(`${DIST}/${SUMS}`, wanted.key, `kproxy ${VERSION}, commit ${commit}`);
  writeLine(`Signed: ${DIST}/${SIGNATURE}`);
}

if (import.meta.main) {
  try {
    await build(wantedOf(Deno.args));
  } catch (error) {
    writeErrorLine(error instanceof Error ? error.message : String(error));
    Deno.exitCode = 1;
  }
}
