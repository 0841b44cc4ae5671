/**
 * An nft that misbehaves before it does what it is asked for.
 *
 * @module
 */
import { findProgram } from "../../tools/setup.ts";

/**
 * A folder `$D` with a program `nft` in it that runs this script before the real one. What decides comes after the input, in
 * `$D/input.$$`, because a program may have been started long before it was needed.
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
