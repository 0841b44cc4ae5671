/**
 * Authorities and certificates for tests of TLS servers, made by `openssl`: valid ones, expired ones, and foreign ones.
 *
 * @module
 */
import { runOk, systemExec } from "../../lib/kernel/exec.ts";
import { type Need, program } from "./skip.ts";

export const PKI: readonly Need[] = [program("openssl")];

/** Paths of a certificate and its key. */
export interface PairPaths {
  readonly cert: string;
  readonly key: string;
}

/** Properties of a certificate, apart from its name. */
export interface Issue {
  /** Issuing authority. @default {"ca"} */
  readonly by?: string;
  /** Year of its validity, if it is not valid now. */
  readonly in?: "2020" | "2099";
  /** Extensions, as in a configuration file of openssl. */
  readonly extensions?: readonly string[];
}

const CLIENT = ["extendedKeyUsage=clientAuth"];
const SERVER = ["extendedKeyUsage=serverAuth", "subjectAltName=DNS:localhost,IP:127.0.0.1"];
const AUTHORITY = ["basicConstraints=critical,CA:true"];

/** A folder with an authority `ca`, and further certificates on demand. */
export class ServingPki {
  private constructor(readonly folder: string) {}

  static async create(folder: string): Promise<ServingPki> {
    const pki = new ServingPki(folder);
    await pki.authority("ca");
    return pki;
  }

  path(name: string): string {
    return `${this.folder}/${name}`;
  }

  /** Creates a self-signed authority; yields the path of its certificate. */
  async authority(name: string): Promise<string> {
    const cert = this.path(`${name}.crt`);
    const extensions = AUTHORITY.flatMap((extension) => ["-addext", extension]);
    await openssl([
      ...["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"],
      ...["-subj", `/CN=${name}`, "-keyout", this.path(`${name}.key`), "-out", cert, ...extensions],
    ]);
    return cert;
  }

  server(name: string, issue: Issue = {}): Promise<PairPaths> {
    return this.#issue(name, { extensions: SERVER, ...issue });
  }

  client(name: string, issue: Issue = {}): Promise<PairPaths> {
    return this.#issue(name, { extensions: CLIENT, ...issue });
  }

  /** Creates an intermediate authority. */
  intermediate(name: string): Promise<PairPaths> {
    return this.#issue(name, { extensions: AUTHORITY });
  }

  async #issue(name: string, issue: Issue): Promise<PairPaths> {
    const { by = "ca", extensions = [] } = issue;
    const [cert, key, request] = [`${name}.crt`, `${name}.key`, `${name}.csr`].map((file) => this.path(file));
    const config = this.path(`${name}.conf`);
    const year = issue.in ?? null;
    await openssl([
      ...["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"],
      ...["-subj", `/CN=${name}`, "-keyout", key!, "-out", request!],
    ]);
    await Deno.writeTextFile(
      config,
      `[ca]\ndefault_ca=d\n[d]\ndatabase=${config}.db\nrand_serial=yes\ndefault_md=sha256\npolicy=p\n` +
        `new_certs_dir=${this.folder}\n[p]\ncommonName=supplied\n[e]\n${extensions.join("\n")}\n`,
    );
    await Deno.writeTextFile(`${config}.db`, "");
    await openssl([
      ...["ca", "-batch", "-notext", "-config", config, "-extensions", "e", "-in", request!, "-out", cert!],
      ...["-cert", this.path(`${by}.crt`), "-keyfile", this.path(`${by}.key`)],
      ...(year === null
        ? ["-days", "20"]
        : ["-startdate", `${year}0101000000Z`, "-enddate", `${year}1201000000Z`]),
    ]);
    return { cert: cert!, key: key! };
  }
}

async function openssl(args: readonly string[]): Promise<void> {
  await runOk(systemExec, ["openssl", ...args]);
}
