/**
 * Rules about `kproxy.serving`. What is in the files is checked where they are read.
 *
 * @module
 */
import { type Finding, invalidValue } from "./finding.ts";
import { TLS_VERSIONS } from "./schema.ts";
import type { KubeProxyConfiguration, ServingConfig } from "./types.ts";

/** What needs TLS: a token, or the proof of a certificate, is nothing to be sent in the clear. */
const NEED_TLS = ["clientCAFile", "bearerTokenFile", "delegatedAuthentication", "healthz"] as const;

/** What is wrong with the section. */
export function checkServing({ kproxy: { serving } }: KubeProxyConfiguration): Finding[] {
  const findings: Finding[] = [];
  const path = (name: keyof ServingConfig): string => `kproxy.serving.${name}`;
  const { tlsCertFile, tlsPrivateKeyFile, tlsMinVersion } = serving;
  if ((tlsCertFile === "") !== (tlsPrivateKeyFile === "")) {
    const [missing, given] = tlsCertFile === ""
      ? ["tlsCertFile", "tlsPrivateKeyFile"] as const
      : ["tlsPrivateKeyFile", "tlsCertFile"] as const;
    const detail = `must name a file, as ${path(given)} does`;
    findings.push(invalidValue(path(missing), "", detail, [path(given)]));
  }
  if (!TLS_VERSIONS.includes(tlsMinVersion)) {
    const detail = `must be ${TLS_VERSIONS.join(", ")} or blank`;
    findings.push(invalidValue(path("tlsMinVersion"), tlsMinVersion, detail));
  }
  for (const name of tlsCertFile === "" ? NEED_TLS : []) {
    if (serving[name] === "" || serving[name] === false) continue;
    const detail = `needs TLS: ${path("tlsCertFile")} must name a file`;
    findings.push(invalidValue(path(name), serving[name], detail, [path("tlsCertFile")]));
  }
  if (serving.bearerTokenFile !== "" && serving.delegatedAuthentication) {
    const detail = `must be false where ${path("bearerTokenFile")} says which tokens count`;
    findings.push(invalidValue(path("delegatedAuthentication"), true, detail, [path("bearerTokenFile")]));
  }
  return findings;
}
