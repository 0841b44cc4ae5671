/**
 * Warnings about the access to an API server: credentials that others on the network can read, and the files that hold them.
 *
 * @module
 */
import { own, type Sentence, sentence } from "../../text/quote.ts";
import type { ClusterAccess, Identity, Pem } from "./kubeconfig.ts";

const CREDENTIALS: Readonly<Record<Identity["kind"], string>> = {
  anonymous: "",
  token: "a token",
  tokenFile: "a token",
  basic: "a password",
  plugin: "the credential of a plugin",
  oidc: "a token",
};

/** The warning if others on the network can read the credentials, or if they cannot be sent; null if neither is so. */
export function credentialsWarning(
  { server, identity, clientCertificate, origin, names, insecureSkipTlsVerify }: ClusterAccess,
): Sentence | null {
  const isPlain = server.startsWith("http:");
  if (!isPlain && !insecureSkipTlsVerify) return null;
  const whose = names === null
    ? sentence`${own(origin)}`
    : sentence`user ${names.user} and cluster ${names.cluster} of ${own(origin)}`;
  const sent = CREDENTIALS[identity.kind];
  if (!isPlain) {
    return sent === ""
      ? null
      : sentence`${own(sent)} goes to ${
        own(server)
      } without a look at its certificate (insecure-skip-tls-verify), so a machine on the way can take its place (${
        own(whose)
      }); name its certificate-authority`;
  }
  if (sent !== "") {
    return sentence`${own(sent)} goes to ${
      own(server)
    } over plain HTTP, where every machine on the way can read it (${
      own(whose)
    }); give the server as https://`;
  }
  if (clientCertificate === null) return null;
  return sentence`a client certificate cannot be shown to ${
    own(server)
  } over plain HTTP, so requests are anonymous (${own(whose)}); give the server as https://`;
}

/** A file that a kubeconfig names. */
export interface AccessFile {
  readonly path: string;
  /** True if a user who can read the file gets all of kproxy's permissions. */
  readonly isSecret: boolean;
}

/** The kubeconfig itself, and the files and the program that it names. */
export function accessFiles(
  { origin, identity, certificateAuthority, clientCertificate }: ClusterAccess,
): readonly AccessFile[] {
  const isKubeconfigSecret = identity.kind === "token" || identity.kind === "basic" ||
    clientCertificate?.key.kind === "text";
  return [
    { path: origin, isSecret: isKubeconfigSecret },
    ...pemFile(certificateAuthority, false),
    ...pemFile(clientCertificate?.certificate ?? null, false),
    ...pemFile(clientCertificate?.key ?? null, true),
    ...identity.kind === "tokenFile" ? [{ path: identity.path, isSecret: true }] : [],
    ...identity.kind === "plugin" && identity.plugin.command.includes("/")
      ? [{ path: identity.plugin.command, isSecret: false }]
      : [],
  ];
}

function pemFile(pem: Pem | null, isSecret: boolean): readonly AccessFile[] {
  return pem?.kind === "file" ? [{ path: pem.path, isSecret }] : [];
}
