/**
 * Which program a credential plugin may not be: kproxy's own ones are granted for its work, and some of them start whatever
 * their arguments say (`ip netns exec`).
 *
 * @module
 */
import { OWN_PROGRAMS } from "../../kernel/own_programs.ts";

/** Where programs usually are: the variable PATH is not among those that kproxy may read. */
const FOLDERS: readonly string[] = [
  "/usr/local/sbin",
  "/usr/local/bin",
  "/usr/sbin",
  "/usr/bin",
  "/sbin",
  "/bin",
];

/**
 * The own program that `command` is, by its name, through links, or as the same file; null if it is none as far as can be seen.
 * `folders` is where names without a slash are looked up.
 */
export async function ownProgramBehind(
  command: string,
  folders: readonly string[] = searchPath(),
): Promise<string | null> {
  const named = ownName(command);
  if (named !== null) return named;
  const places = command.includes("/") ? [command] : folders.map((folder) => `${folder}/${command}`);
  const files = (await Promise.all(places.map(fileAt))).filter((file) => file !== null);
  for (const file of files) {
    const own = ownName(file.path) ?? await ownWithSameFile(file, folders);
    if (own !== null) return own;
  }
  return null;
}

interface ProgramFile {
  /** Without links. */
  readonly path: string;
  /** Device and number of the file: equal for all its names. */
  readonly identity: string;
}

function ownName(path: string): string | null {
  const name = path.slice(path.lastIndexOf("/") + 1);
  return OWN_PROGRAMS.includes(name) ? name : null;
}

async function ownWithSameFile(
  { identity }: ProgramFile,
  folders: readonly string[],
): Promise<string | null> {
  for (const name of OWN_PROGRAMS) {
    for (const folder of folders) {
      if ((await fileAt(`${folder}/${name}`))?.identity === identity) return name;
    }
  }
  return null;
}

/** The file at a path; null if there is none that can be looked at, which then cannot be started either. */
async function fileAt(path: string): Promise<ProgramFile | null> {
  try {
    const { dev, ino } = await Deno.stat(path);
    return { path: await Deno.realPath(path), identity: `${dev}:${ino}` };
  } catch (error) {
    if (error instanceof Deno.errors.NotFound || error instanceof Deno.errors.NotADirectory) return null;
    if (error instanceof Deno.errors.PermissionDenied || error instanceof Deno.errors.NotCapable) return null;
    if (error instanceof Deno.errors.FilesystemLoop) return null;
    throw error;
  }
}

function searchPath(): readonly string[] {
  return [
    ...new Set([
      ...(readablePath()?.split(":") ?? []).filter((folder) => folder.startsWith("/")),
      ...FOLDERS,
    ]),
  ];
}

function readablePath(): string | undefined {
  try {
    return Deno.env.get("PATH");
  } catch (error) {
    if (error instanceof Deno.errors.NotCapable) return undefined;
    throw error;
  }
}
