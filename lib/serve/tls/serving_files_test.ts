import { assertEquals, assertRejects } from "@std/assert";
import { withFolder } from "../../../tests/support/temp_files.ts";
import { LOCAL_PAIR, NODE_PAIR, TEST_CA } from "../../../tests/support/test_certificates.ts";
import { defaultConfig } from "../../config/defaults.ts";
import type { ServingConfig } from "../../config/types.ts";
import { ConfigError } from "../../errors.ts";
import { readServingFiles } from "./serving_files.ts";

const { serving } = defaultConfig().kproxy;

/** The files in a folder of its own, and the configuration that names them. */
async function withFiles(
  contents: Readonly<Partial<Record<"crt" | "key" | "ca" | "token", string>>>,
  work: (config: ServingConfig, folder: string) => Promise<void>,
): Promise<void> {
  await withFolder(async (folder) => {
    for (const [name, text] of Object.entries(contents)) {
      await Deno.writeTextFile(`${folder}/${name}`, text, { mode: 0o600 });
    }
    const path = (name: keyof typeof contents): string => name in contents ? `${folder}/${name}` : "";
    await work({
      ...serving,
      tlsCertFile: `${folder}/crt`,
      tlsPrivateKeyFile: `${folder}/key`,
      clientCAFile: path("ca"),
      bearerTokenFile: path("token"),
    }, folder);
  });
}

const GOOD = { crt: LOCAL_PAIR.cert, key: LOCAL_PAIR.key };

Deno.test("good files are read, and one that others may read is reported", async () => {
  await withFiles({ ...GOOD, ca: TEST_CA, token: "one\n\n two \n" }, async (config, folder) => {
    const material = await readServingFiles(config);
    assertEquals([material.ca, material.tokenHashes?.length, material.openFiles], [TEST_CA, 2, []]);
    assertEquals(new Date(material.validToMs).getUTCFullYear(), 2126);
    await Deno.chmod(`${folder}/key`, 0o644);
    await Deno.chmod(`${folder}/crt`, 0o644);
    const again = await readServingFiles(config);
    assertEquals([again.openFiles, again.fingerprint], [[`${folder}/key`], material.fingerprint]);
  });
});

Deno.test("what cannot be used is refused at once, with its field and file", async () => {
  const broken = LOCAL_PAIR.cert.replace(/\n[A-Za-z0-9+/]{8}/, "\nAAAAAAAA");
  for (
    const [change, field, file, problem] of [
      [{ crt: "" }, "tlsCertFile", "crt", "it holds no certificate (PEM)"],
      [{ crt: broken }, "tlsCertFile", "crt", "it holds a certificate that cannot be read"],
      [{ crt: LOCAL_PAIR.cert + broken }, "tlsCertFile", "crt", "it holds a certificate that cannot be read"],
      [{ key: "x" }, "tlsPrivateKeyFile", "key", "it holds no private key (PEM)"],
      [{ key: LOCAL_PAIR.cert }, "tlsPrivateKeyFile", "key", "it holds no private key (PEM)"],
      [
        { key: NODE_PAIR.key },
        "tlsPrivateKeyFile",
        "key",
        "it is not the key of the certificate in kproxy.serving.tlsCertFile",
      ],
      [
        { key: "-----BEGIN ENCRYPTED PRIVATE KEY-----\n" },
        "tlsPrivateKeyFile",
        "key",
        "the key is encrypted",
      ],
      [{ ca: "x" }, "clientCAFile", "ca", "it holds no certificate (PEM)"],
      [{ ca: LOCAL_PAIR.cert }, "clientCAFile", "ca", "it holds no certificate of an authority"],
      [{ token: " \n" }, "bearerTokenFile", "token", "it holds no token"],
      [{ token: "a\nb c" }, "bearerTokenFile", "token", "token 2 has characters that no Bearer token has"],
      [{ token: "x".repeat(2_000_000) }, "bearerTokenFile", "token", "it is larger than 1048576 bytes"],
    ] as const
  ) {
    await withFiles({ ...GOOD, ...change }, async (config, folder) => {
      const error = await assertRejects(() => readServingFiles(config), ConfigError);
      const expected = `kproxy.serving.${field}: ${folder}/${file}: ${problem}`;
      assertEquals(error.message.slice(0, expected.length), expected);
    });
  }
});

Deno.test("a folder or a pipe in the place of a file is refused instead of waited for, a missing one named", async () => {
  await withFiles(GOOD, async (config, folder) => {
    const key = `${folder}/key`;
    await Deno.remove(key);
    await assertRejects(
      () => readServingFiles(config),
      ConfigError,
      `tlsPrivateKeyFile: ${key}: No such file`,
    );
    await new Deno.Command("mkfifo", { args: [key] }).output();
    await assertRejects(() => readServingFiles(config), ConfigError, `${key}: it is no regular file`);
    await Deno.remove(key);
    await Deno.mkdir(key);
    await assertRejects(() => readServingFiles(config), ConfigError, `${key}: it is no regular file`);
  });
});
