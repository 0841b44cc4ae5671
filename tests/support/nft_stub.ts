/**
 * A stub of nft that misbehaves before it runs the real one.
 *
 * @module
 */
import { findProgram } from "../../tools/setup.ts";

/**
 * Runs `work` with a folder `$D` whose `nft` runs this script before the real one. The script can decide by the input, in
 * `$D/input.$$`: the program may have been started long before its input.
 */
export async function withNft(script: string, work: (bin: string) => Promise<void>): Promise<void> {
  const bin = await Deno.makeTempDir({ prefix: "kproxy-bin-" });
  try {
    const text = `#!/bin/sh
D=${bin}
case "$*" in
  *"-f -") cat > $D/input.$$;;
  *) : > $D/input.$$;;
esac
${script}
exec ${findProgram("nft")} "$@" < $D/input.$$
`;
    await Deno.writeTextFile(`${bin}/nft`, text, { mode: 0o755 });
    await work(bin);
  } finally {
    await Deno.remove(bin, { recursive: true });
  }
}
